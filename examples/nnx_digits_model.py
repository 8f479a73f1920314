"""A convolutional classifier, written in NNX."""

import dataclasses

from flax import nnx

from kauldron import kontext
from kauldron.contrib import knnx


class Encoder(nnx.Module):
    """An ordinary NNX module: it knows nothing of the trainer."""

    def __init__(self, width, *, rngs):
        self.first = nnx.Conv(1, width, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(width, rngs=rngs)
        self.second = nnx.Conv(width, 2 * width, (3, 3), rngs=rngs)
        self.dropout = nnx.Dropout(0.3, rngs=rngs)

    def __call__(self, image):
        x = nnx.relu(self.norm(self.first(image)))
        x = nnx.max_pool(nnx.relu(self.second(x)), (2, 2), strides=(2, 2))
        self.sow(nnx.Intermediate, "features", x)
        return self.dropout(x.reshape(len(x), -1))


@dataclasses.dataclass(kw_only=True)
class Classifier(knnx.KdNnxModule):
    """The model of the config: settings and keys are its fields.

    Attributes:
      width: Number of filters.
      num_classes: Number of classes.
      image: Key of the images, `b 8 8 1`.
    """

    width: int = 32
    num_classes: int = 10
    image: kontext.Key = kontext.REQUIRED

    def setup(self, rngs):
        """Make the layers."""
        self.encoder = Encoder(self.width, rngs=rngs)
        self.head = nnx.Linear(4 * 4 * 2 * self.width, self.num_classes, rngs=rngs)

    def __call__(self, image):
        return {"logits": self.head(self.encoder(image))}
