"""Spoken digits as spectrograms."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Collection
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np

from split_common.checks import check_positive_int
from split_common.datasets.files import file_in, read_arrays, retrieve, write_arrays
from split_common.values import shown, whole_number

SAMPLE_RATE, FULL_SCALE, SAMPLES = 8000, 32768.0, 8192  # in hertz; of 16 bits; of a recording, cut or zero-padded
POWER_FLOOR = 1e-8  # least power, in full scale squared per hertz, so that silence has a logarithm
OFFICIAL_TEST = 5  # recordings of each speaker and digit below this number are the data set's own test set
COMMIT = "26eb9aaf76e81b692f806f9140c2d2777410d7a1"
ARCHIVE_URL = f"https://github.com/Jakobovski/free-spoken-digit-dataset/archive/{COMMIT}.zip"
CONTENT = "336b9ef9ff4f18e80b4eb8696744a89ecf857cedc305e023ff358cd9f395ebba"
SPLITS = ("official", "speaker", "random")
FIELDS = ("audio", "label", "speaker", "index")


class SpokenDigits(NamedTuple):
    """Spectrograms of spoken digits, divided into training and test data.

    Attributes:
        x_train: log-power in float32, shape (N, frequencies, times).
        y_train: the digits in int64, shape (N,).
        x_test: test spectrograms, as ``x_train``.
        y_test: their digits.
        speaker_train: who speaks, as text, shape (N,).
        speaker_test: likewise.
    """

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    speaker_train: np.ndarray
    speaker_test: np.ndarray


def load_spoken_digits(
    directory: str | os.PathLike[str] | None = None,
    *,
    split: str = "official",
    test_speakers: Collection[str] = ("theo",),
    test_fraction: float = 0.1,
    seed: int = 0,
    window: int = 256,
    overlap: int = 128,
    standardise: bool = True,
    download: bool = False,
) -> SpokenDigits:
    """Load the free spoken digits, 3,000 recordings of six speakers, as log-power spectrograms.

    Z. Jackson, C. Souza, J. Flaks, Y. Pan, H. Nicolas and A. Thite (2018), Free Spoken Digit Dataset, Zenodo,
    doi:10.5281/zenodo.1342401. CC BY-SA 4.0: what is shown of it names them and has the same licence.

    A recording is cut, or filled up with zeros, to 8,192 samples at 8 kHz, a second. Its spectrogram is that of
    :func:`scipy.signal.spectrogram` with a Hann window, its logarithm natural.

    Args:
        directory: where ``fsdd.npz`` lies; None for the directory that SPLIT_MCMC_DATA names. The file holds ``audio``
            (int16, shape (N, 8192)), ``label``, ``speaker`` and ``index``, the number of the recording.
        split: "official" for the data set's own (the first five recordings of each speaker and digit are the test
            set), "speaker" for speakers who are not in the training set, "random" for a random share.
        test_speakers: for "speaker", who is kept for testing: george, jackson, lucas, nicolas, theo, yweweler.
        test_fraction: for "random", the share that is kept for testing, digit by digit.
        seed: for "random", of the division.
        window: samples of a window.
        overlap: samples that two windows share.
        standardise: whether each frequency is shifted and scaled to mean 0 and variance 1 over the training set.
        download: whether to fetch the recordings where the file is missing, into ``directory`` or, without one, pooch's
            cache; the checksum of the recordings is verified. It needs ``split-mcmc[datasets]``.

    Returns:
        ``window // 2 + 1`` frequencies, 0 to 4 kHz, at ``(8192 - overlap) // (window - overlap)`` times: 129 x 63.

    Raises:
        FileNotFoundError: when the directory has no ``fsdd.npz``.
        ValueError: for another split, speakers that are not there or all that are, numbers out of range, and when the
            file lacks an array.

    Example:
        >>> digits = load_spoken_digits(split="speaker")  # doctest: +SKIP
        >>> digits.x_train.shape, digits.x_test.shape  # doctest: +SKIP
        ((2500, 129, 63), (500, 129, 63))
    """
    if split not in SPLITS:
        raise ValueError(f"split must be one of {SPLITS}, got {shown(split)}")
    window = check_positive_int("window", window, SAMPLES)
    shared = whole_number(overlap)
    if shared is None or not 0 <= shared < window:
        raise ValueError(f"overlap must be a whole number from 0 to window - 1 = {window - 1}, got {shown(overlap)}")
    held = read_arrays(file_in(directory, "fsdd.npz", download, _make_recordings), FIELDS)
    if split == "official":
        is_test = held["index"] < OFFICIAL_TEST
    elif split == "speaker":
        is_test = _of_speakers(held["speaker"], test_speakers)
    else:
        is_test = _at_random(held["label"], test_fraction, seed)
    x = _log_power(held["audio"], window, shared)
    x_train, x_test = x[~is_test], x[is_test]
    if standardise:
        x_train, x_test = _standardised(x_train, x_test)
    y, speakers = held["label"].astype(np.int64), held["speaker"]
    return SpokenDigits(x_train, y[~is_test], x_test, y[is_test], speakers[~is_test], speakers[is_test])


def _log_power(audio: np.ndarray, window: int, overlap: int) -> np.ndarray:
    """Spectrograms, some recordings at a time, which keeps the intermediate arrays small."""
    from scipy.signal import spectrogram

    parts = []
    for some in np.array_split(audio, max(1, len(audio) // 200)):
        signal = some.astype(np.float32) / np.float32(FULL_SCALE)
        power = spectrogram(signal, SAMPLE_RATE, "hann", window, overlap)[2]
        parts.append(np.log(np.maximum(power, POWER_FLOOR)).astype(np.float32))
    return np.concatenate(parts)


def _standardised(x_train: np.ndarray, x_test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both with each frequency shifted and scaled by its mean and deviation in training; a constant one is shifted."""
    mean, found = (f(x_train, axis=(0, 2), dtype=np.float64, keepdims=True) for f in (np.mean, np.std))
    scale = np.where(found <= 1e-6 * np.abs(mean), 1.0, found)  # a deviation that is only rounding
    return ((x_train - mean) / scale).astype(np.float32), ((x_test - mean) / scale).astype(np.float32)


def _of_speakers(speakers: np.ndarray, chosen: Collection[str]) -> np.ndarray:
    """Which recordings are of some speakers."""
    known = sorted(set(speakers.tolist()))
    names = [chosen] if isinstance(chosen, str) else list(chosen)
    if not names or not set(names) < set(known):
        raise ValueError(f"test_speakers must be some of {known}, at least one and not all, got {shown(names)}")
    return np.isin(speakers, names)


def _at_random(labels: np.ndarray, fraction: float, seed: int) -> np.ndarray:
    """Which recordings are in a random share, taken digit by digit."""
    if not 0 < fraction < 1:
        raise ValueError(f"test_fraction must lie between 0 and 1, got {shown(fraction)}")
    rng, found = np.random.default_rng(seed), np.zeros(len(labels), bool)
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        found[members[: round(fraction * len(members))]] = True
    return found


def _make_recordings(path: Path) -> None:
    """Write the recordings of the archive, in a fixed random order."""
    from scipy.io import wavfile

    archive = path.with_name("free-spoken-digit-dataset.zip")
    retrieve(ARCHIVE_URL, None, archive)
    with zipfile.ZipFile(archive) as held:
        names = sorted(name for name in held.namelist() if "/recordings/" in name and name.endswith(".wav"))
        order = np.random.default_rng(0).permutation(len(names))
        parts = [PurePosixPath(names[i]).stem.split("_") for i in order]
        sounds = [wavfile.read(io.BytesIO(held.read(names[i])))[1] for i in order]
    audio = np.zeros((len(sounds), SAMPLES), np.int16)
    for row, sound in zip(audio, sounds, strict=True):
        row[: min(len(sound), SAMPLES)] = sound[:SAMPLES]
    arrays = {
        "audio": audio,
        "length": np.array([len(sound) for sound in sounds], np.int32),
        "label": np.array([int(digit) for digit, _, _ in parts], np.uint8),
        "speaker": np.array([speaker for _, speaker, _ in parts]),
        "index": np.array([int(number) for _, _, number in parts], np.int16),
    }
    write_arrays(path, arrays, CONTENT)
    archive.unlink()
