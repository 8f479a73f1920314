"""A small language model of characters, and the text that it learns."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from kauldron import kd, kontext

CONTEXT = 64  # characters that the model sees at once
PROMPT = 16  # characters that a sample continues
NUM_CHARS = 128


class Block(nn.Module):
    """Attention to earlier characters, then a layer for each character by itself."""

    num_heads: int

    @nn.compact
    def __call__(self, x, mask):
        attention = nn.MultiHeadDotProductAttention(num_heads=self.num_heads)
        x = x + attention(nn.LayerNorm()(x), mask=mask)
        h = nn.gelu(nn.Dense(4 * x.shape[-1])(nn.LayerNorm()(x)))
        return x + kd.nn.Dropout(0.1)(nn.Dense(x.shape[-1])(h))


class CharLm(nn.Module):
    """Predicts each next character, and continues texts.

    Attributes:
      width: Size of the vector of a character.
      num_layers: Number of blocks.
      num_heads: Heads of attention.
      temperature: How daring samples are; 0 takes the likeliest character.
      text: Key of the characters, integers of shape `b t`.
    """

    width: int = 128
    num_layers: int = 2
    num_heads: int = 4
    temperature: float = 0.5
    text: kontext.Key = kontext.REQUIRED

    @nn.compact
    def __call__(self, text):
        position = self.param(
            "position", nn.initializers.normal(0.02), (CONTEXT, self.width)
        )
        x = nn.Embed(NUM_CHARS, self.width)(text) + position[: text.shape[1]]
        for _ in range(self.num_layers):
            x = Block(self.num_heads)(x, nn.make_causal_mask(text))
        return {"logits": nn.Dense(NUM_CHARS)(nn.LayerNorm()(x))}

    def generate(self, text):
        """Keep the first characters of each text, and write the others."""
        rng = self.make_rng("sample")
        model, variables = self.unbind()

        def write_one(text, place):
            logits = model.apply(variables, text)["logits"][:, place - 1]
            if self.temperature:
                key = jax.random.fold_in(rng, place)
                char = jax.random.categorical(key, logits / self.temperature)
            else:
                char = jnp.argmax(logits, axis=-1)
            return text.at[:, place].set(char.astype(text.dtype)), None

        places = jnp.arange(PROMPT, text.shape[1])
        return {"text": jax.lax.scan(write_one, text, places)[0]}


def python_manual():
    """Return pieces of the language reference, which comes with Python for `help()`."""
    from pydoc_data import topics

    text = "\n".join(topics.topics.values())
    chars = np.frombuffer(text.encode("ascii", errors="replace"), np.uint8)
    num_pieces = (len(chars) - 1) // CONTEXT
    inputs = chars[: num_pieces * CONTEXT].reshape(num_pieces, CONTEXT)
    following = chars[1 : num_pieces * CONTEXT + 1].reshape(num_pieces, CONTEXT, 1)
    order = np.random.default_rng(0).permutation(num_pieces)
    return {
        "text": inputs[order].astype(np.int32),
        "next": following[order].astype(np.int32),
    }


def decode(chars):
    """Return the text of an array of characters, with a mark where the model starts."""
    text = bytes(int(char) for char in chars).decode("ascii", errors="replace")
    return f"{text[:PROMPT]}|{text[PROMPT:]}"
