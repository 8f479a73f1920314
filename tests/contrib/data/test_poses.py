"""Transforms of camera poses."""

import numpy as np
import pytest

from kauldron.contrib import data as C

SOURCE = np.array([[1.0, 0, 0, 1], [0, 1, 0, 0], [0, 0, 1, 0]])
TARGET = np.array([[0.0, -1, 0, 1], [1, 0, 0, 2], [0, 0, 1, 0]])
IDENTITY = np.eye(3, 4)


def relative(poses, **options):
    transform = C.RelativePoses(key="x", **options)
    assert hash(transform) == hash(C.RelativePoses(key="x", **options))
    return transform.map({"x": np.asarray(poses)})["x"]


def test_pose_of_the_next_frame():
    poses = [SOURCE, TARGET]
    expected = [[0, -1, 0, 0], [1, 0, 0, 2], [0, 0, 1, 0]]
    np.testing.assert_allclose(relative(poses, stride=1), [expected], atol=1e-7)
    expected = [[0, 1, 0, -1], [-1, 0, 0, 1], [0, 0, 1, 0]]
    back = relative(poses, stride=1, cam_to_world_poses=False)
    np.testing.assert_allclose(back, [expected], atol=1e-7)
    unit = relative(poses, stride=1, normalize_translation=True)
    np.testing.assert_allclose(unit[0, :, 3], [0, 1, 0], atol=1e-6)


def test_pairs_of_frames():
    poses = np.stack([SOURCE, TARGET, SOURCE, TARGET, TARGET])
    strided = relative(poses, stride=2)
    assert strided.shape == (2, 3, 4)
    np.testing.assert_allclose(strided[0], IDENTITY, atol=1e-7)
    first = relative(poses, stride=2, relative_to_first_frame=True)
    np.testing.assert_array_equal(first[0], IDENTITY)
    np.testing.assert_allclose(first[2], relative([SOURCE, TARGET], stride=1)[0])
    pairs = relative(poses, stride=-1).reshape(5, 5, 3, 4)
    for i in range(5):
        np.testing.assert_array_equal(pairs[i, i], IDENTITY)
    np.testing.assert_allclose(pairs[1, 0], relative([SOURCE, TARGET], stride=1)[0])


def test_quaternions_go_in_and_out():
    half = 0.5**0.5
    quaternions = np.array([[0, 0, 0, 2, 1, 0, 0], [0, 0, -half, -half, 1, 2, 0]])
    result = relative(
        quaternions[..., None],
        stride=1,
        input_rotation_as_quaternion=True,
        output_rotation_as_quaternion=True,
    )
    expected = [0, 0, half, half, 0, 2, 0]
    np.testing.assert_allclose(result[0, :, 0], expected, atol=1e-7)
    same = relative([SOURCE], stride=-1, output_rotation_as_quaternion=True)
    assert same[0, :, 0].tolist() == [0, 0, 0, 1, 0, 0, 0]


def test_poses_of_tartan_air():
    pose = np.array([[1, 2, 3, 0, 0, 0, 1]], np.float32)
    result = C.TartanPoseToRT(key="x").map({"x": pose})["x"]
    assert result.tolist() == [[[0, 0, 1, 1], [1, 0, 0, 2], [0, 1, 0, 3]]]
    assert result.dtype == np.float32


def test_bad_poses():
    for stride in (0, -2):
        with pytest.raises(ValueError, match="stride"):
            C.RelativePoses(key="x", stride=stride)
    with pytest.raises(ValueError, match=r"expects \(t, 3, 4\)"):
        relative(np.zeros((2, 4, 4)), stride=1)
    with pytest.raises(ValueError, match=r"expects \(t, 7\)"):
        C.TartanPoseToRT(key="x").map({"x": np.zeros((2, 3))})
