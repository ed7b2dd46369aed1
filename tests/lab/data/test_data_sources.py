"""MNIST, Citeseer and `jaxarch data`: what is there, from where, and that nothing is fetched unasked."""

import gzip
import hashlib
import shutil
import socket
import threading

import numpy as np
import pytest
import tfds_form
from click.testing import CliRunner

from jaxarch.lab import cli
from jaxarch.lab.data import (
    citation_graph,
    citeseer,
    load,
    load_examples,
    load_images,
    mnist,
    network,
    read_tfds,
    sources,
)
from jaxarch.lab.data.folders import own_folder

TRAIN_COUNTS = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
TEST_COUNTS = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


class Reached(AssertionError):
    """Something reached for the network."""


@pytest.fixture(autouse=True)
def _nothing_but_what_a_test_puts_there(monkeypatch, tmp_path):
    """No network, an empty home, no folders of data."""

    def refuse(*_, **__):
        raise Reached

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("TFDS_DATA_DIR", "JAXARCH_DATA"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def archives(data_folder):
    folder = data_folder / mnist.FOLDER
    if not folder.is_dir():
        pytest.skip(f"JAXARCH_DATA has no {mnist.FOLDER}")
    return folder


def run(*arguments):
    done = CliRunner().invoke(cli.app, arguments)
    if done.exception:
        raise done.exception
    return done.output


def test_citeseer_is_whole_and_in_every_install():
    words, labels = citeseer.words()
    assert words.shape == (3312, 3703)
    assert (words.data == 1).all()
    assert np.bincount(labels).tolist() == [249, 590, 668, 701, 596, 508]
    assert words.nnz == 105165
    assert "Zhilin Yang" in citeseer.FILE.with_name("citeseer.LICENSE.txt").read_text()


def test_citations_join_different_papers_and_each_pair_once():
    graph = citation_graph()
    assert graph.edges.shape == (2, 4536)
    assert (graph.edges[0] < graph.edges[1]).all()
    assert graph.edges.max() < len(graph.y) == 3312
    assert len(np.unique(graph.edges, axis=1).T) == 4536


def test_citations_mostly_stay_within_a_class():
    graph = citation_graph()
    same = np.equal(*graph.y[graph.edges])
    assert same.mean() == pytest.approx(0.7377, abs=1e-4)  # By chance it would be .18.


def test_citeseer_has_planetoid_s_split():
    graph = citation_graph()
    assert np.bincount(graph.y[graph.train]).tolist() == [20] * 6
    assert np.bincount(graph.y[graph.test]).tolist() == [77, 182, 181, 231, 169, 160]
    parts = np.concatenate([graph.train, graph.validation, graph.test])
    assert len(np.unique(parts)) == 1620


@pytest.mark.long
def test_citeseer_is_loaded_as_64_components_the_same_each_time():
    data = load("citeseer")
    assert data.x.shape == (3312, 64)
    # What a full decomposition gives, in half a minute.
    assert data.x.var(axis=0, ddof=1)[[0, 63]] == pytest.approx([0.35780212, 0.07442477], rel=1e-5)
    assert np.array_equal(data.x, load("citeseer").x)


@pytest.mark.parametrize("content", [None, b"", b"something else"])
def test_another_file_in_citeseer_s_place_is_refused(content, tmp_path, monkeypatch):
    monkeypatch.setattr(citeseer, "FILE", tmp_path / "citeseer.npz")
    if content is not None:
        citeseer.FILE.write_bytes(content)
    with pytest.raises(ValueError, match=r"citeseer\.npz is missing, truncated or altered"):
        citeseer.words()


def test_mnist_that_is_not_there_is_refused_with_the_ways_to_get_it():
    with pytest.raises(ValueError, match=r"mnist is not ready: none of .* has it; to get it: jaxarch data"):
        load("mnist")


@pytest.mark.long
def test_mnist_is_read_from_its_archives(archives, monkeypatch):
    monkeypatch.setenv("JAXARCH_DATA", str(archives.parent))
    _, images, labels, train = load_images("mnist")
    assert images.shape == (70000, 28, 28, 1)
    assert images.dtype == np.uint8
    assert train == 60000
    assert np.bincount(labels[:60000]).tolist() == TRAIN_COUNTS
    assert np.bincount(labels[60000:]).tolist() == TEST_COUNTS
    assert images[:60000].mean() == pytest.approx(33.3184, abs=1e-4)
    data = load("mnist")
    assert data.x.shape == (70000, 64)
    assert np.array_equal(data.y, labels)
    assert data.x[0, 0] == pytest.approx(images[0, 2:5, 2:5, 0].mean())


@pytest.mark.long
def test_the_files_of_tensorflow_datasets_give_the_same_rows_as_the_archives(
    archives, data_folder, monkeypatch
):
    for package in ("tensorflow_datasets", "array_record", "PIL"):
        pytest.importorskip(package)
    monkeypatch.setenv("JAXARCH_DATA", str(archives.parent))
    expected = load_images("mnist")
    monkeypatch.setenv("TFDS_DATA_DIR", str(data_folder / "tfds"))
    assert mnist.find() == data_folder / "tfds" / "mnist" / "3.0.1"
    for _ in ("decoded", "from the cache"):
        again = load_images("mnist")
        assert np.array_equal(expected.x, again.x)
        assert np.array_equal(expected.y, again.y)


@pytest.mark.long
def test_both_formats_of_tensorflow_datasets_give_equal_arrays(data_folder):
    for package in ("tensorflow_datasets", "array_record", "PIL"):
        pytest.importorskip(package)
    if not (data_folder / "tfds_tfrecord").is_dir():
        pytest.skip("JAXARCH_DATA has no tfds_tfrecord")
    first, second = (read_tfds("mnist", "test", data_folder / form) for form in ("tfds", "tfds_tfrecord"))
    assert np.array_equal(first[0], second[0])
    assert np.array_equal(first[1], second[1])


def cut(path):
    path.write_bytes(path.read_bytes()[:-100])


def replace(path):
    path.write_bytes(gzip.compress(bytes(1000)))


@pytest.mark.parametrize("damage", [cut, replace])
def test_a_damaged_archive_is_refused_by_name(damage, archives, tmp_path, monkeypatch):
    shutil.copytree(archives, tmp_path / mnist.FOLDER, copy_function=shutil.copyfile)
    (tmp_path / mnist.FOLDER).chmod(0o755)
    monkeypatch.setenv("JAXARCH_DATA", str(tmp_path))
    damage(tmp_path / mnist.FOLDER / "t10k-labels-idx1-ubyte.gz")
    with pytest.raises(ValueError, match=r"dataset: .*t10k-labels-idx1-ubyte\.gz is not MNIST's, or damaged"):
        load("mnist")


def test_other_pictures_under_mnist_s_name_are_refused(tmp_path, monkeypatch):
    for package in ("tensorflow_datasets", "PIL"):
        pytest.importorskip(package)
    tfds_form.write(tmp_path, "tfrecord", name="mnist")
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    monkeypatch.setattr(mnist, "CONTENT", {"train": "other"})
    with pytest.raises(ValueError, match=r"dataset: .* has pictures in 'train' that are not MNIST's"):
        load("mnist")


def test_the_list_says_what_is_ready_and_how_to_get_the_rest():
    listed = " ".join(run("data").split())
    for text in (
        "digits ready",
        "mnist not ready",
        "citeseer-words ready",
        "tiny-shakespeare ready",
        "--download",
        "FILE.npz",
        "cifar10 not ready",
    ):
        assert text in listed


@pytest.mark.long
def test_a_source_is_shown_with_its_examples_per_class():
    shown = run("data", "citeseer")
    assert "3312 examples x 64 features" in shown
    assert "class 3        701 examples" in shown
    assert "not ready" in run("data", "mnist")


def test_a_file_of_the_user_s_is_shown_too(tmp_path):
    np.savez(tmp_path / "mine.npz", x=np.eye(5), y=[0, 0, 1, 1, 1])
    assert "class 1          3 examples" in run("data", str(tmp_path / "mine.npz"))


def test_examples_are_pictures_where_there_are_some_and_features_otherwise(tmp_path):
    np.savez(tmp_path / "features.npz", x=np.eye(4), y=[0, 0, 1, 1])
    np.savez(tmp_path / "pictures.npz", x=np.zeros((4, 2, 2), np.uint8), y=[0, 0, 1, 1])
    names = "digits", "citeseer-words", tmp_path / "features.npz", tmp_path / "pictures.npz"
    assert [type(load_examples(name)).__name__ for name in names] == [
        "Images",
        "Dataset",
        "Dataset",
        "Images",
    ]


@pytest.mark.parametrize("x", [np.zeros(4, np.uint8), np.zeros((4, 2, 2))])
def test_examples_that_are_neither_pictures_nor_features_are_refused(x, tmp_path):
    np.savez(tmp_path / "mine.npz", x=x, y=[0, 0, 1, 1])
    with pytest.raises(
        ValueError, match=r"x: expected features of shape \(examples, features\), or uint8 pixels"
    ):
        load_examples(tmp_path / "mine.npz")


def test_files_that_cannot_be_read_for_want_of_a_package_are_not_ready(tmp_path, monkeypatch):
    place = tmp_path / "mnist" / "3.0.1"
    place.mkdir(parents=True)
    (place / "dataset_info.json").write_text("{}")
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    ready, why = mnist.status()
    assert not ready
    assert "pip install 'jaxarch[data]'" in why


def test_nothing_is_fetched_unasked():
    """Every socket here refuses; to look and to load must not touch one."""
    run("data")
    run("data", "mnist")
    with pytest.raises(ValueError, match="not ready"):
        load("mnist")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["data", "--download"], "download: expected the name"),
        (
            ["data", "digits", "--download"],
            "download: jaxarch cannot download digits; to get it: comes with",
        ),
        (["data", "mnits", "--download"], "dataset: unknown 'mnits'; did you mean 'mnist'"),
        (["data", "mnits"], "dataset: unknown 'mnits'; did you mean 'mnist'"),
    ],
)
def test_what_cannot_be_shown_or_fetched_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        run(*arguments)


def test_a_download_without_a_network_is_refused_within_seconds(monkeypatch):
    def unknown(*_, **__):
        raise socket.gaierror(-2, "Name or service not known")

    pytest.importorskip("tensorflow_datasets")
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(ValueError, match=r"download: no connection to storage\.googleapis\.com"):
        sources.download("mnist")
    assert not own_folder().exists()


def test_a_host_that_does_not_answer_is_given_up(monkeypatch):
    given_up, ended = threading.Event(), []

    def silent(*_):
        given_up.wait(5)
        ended.append(True)
        raise TimeoutError

    monkeypatch.setattr(network, "PATIENCE", 0.05)
    monkeypatch.setattr(socket, "create_connection", silent)
    with pytest.raises(ValueError, match=r"download: no connection to example\.org"):
        network.check_reachable("https://example.org/file")
    assert not ended
    given_up.set()


def test_the_proxy_is_asked_where_there_is_one(monkeypatch):
    asked = []

    def refuse(address, _):
        asked.append(address)
        raise OSError

    monkeypatch.setenv("https_proxy", "http://proxy.example.org:3128")
    monkeypatch.setattr(socket, "create_connection", refuse)
    with pytest.raises(ValueError, match=r"no connection to proxy\.example\.org"):
        network.check_reachable("https://example.org/file")
    assert asked == [("proxy.example.org", 3128)]


@pytest.fixture
def served(archives, monkeypatch):
    """TFDS's downloads answered from the archives, in place of the network."""
    downloader = pytest.importorskip("tensorflow_datasets.core.download.downloader")
    pytest.importorskip("importlib_resources")
    content = {name: (archives / name).read_bytes() for name in mnist.ARCHIVES}

    class Answer:
        def __init__(self, url):
            self.url = url
            self.headers = {}

        def __enter__(self):
            return self, [content[self.url.rsplit("/", 1)[1]]]

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(downloader, "_open_url", lambda url, **_: Answer(url))
    monkeypatch.setattr(network, "check_reachable", lambda url: None)
    return content


@pytest.mark.long
def test_a_download_is_checked_and_then_ready(served):
    assert "downloaded into" in run("data", "mnist", "--download")
    assert mnist.status() == (True, str(own_folder() / mnist.FOLDER))
    for name, checksum in mnist.ARCHIVES.items():
        assert hashlib.sha256((own_folder() / mnist.FOLDER / name).read_bytes()).hexdigest() == checksum


def test_a_download_of_something_else_is_refused_and_leaves_nothing(served):
    served["t10k-labels-idx1-ubyte.gz"] = b"something else"
    with pytest.raises(ValueError, match="download: cannot download MNIST into"):
        sources.download("mnist")
    assert list(own_folder().iterdir()) == []


def test_a_download_without_the_packages_names_them(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(ValueError, match=r"without tensorflow_datasets; pip install 'jaxarch\[data\]'"):
        sources.download("mnist")
