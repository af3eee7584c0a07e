"""Downloads from a server on this machine that breaks in every way a real one does."""

import hashlib

import numpy as np
import pytest

from discreet.data.atomic_files import atomic_write
from discreet.data.download import cache_folder, download, file_md5
from discreet.errors import DataError
from support.local_server import serving

BODY = np.random.default_rng(0).bytes(700_000)
SHA256 = hashlib.sha256(BODY).hexdigest()
MD5 = hashlib.md5(BODY, usedforsecurity=False).hexdigest()


@pytest.fixture
def server():
    with serving(BODY) as running:
        yield running


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def test_a_whole_file_arrives_with_progress(server, tmp_path):
    seen = []
    target = tmp_path / "new" / "folder" / "a.zip"
    assert (
        download(
            server.url + "/a.zip", target, sha256=SHA256, progress=lambda *state: seen.append(state)
        )
        == target
    )
    assert target.read_bytes() == BODY
    assert [file.name for file in target.parent.iterdir()] == ["a.zip"]
    assert seen[-1] == (len(BODY), len(BODY), "a.zip")
    assert [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)


def test_a_cut_connection_is_taken_up_where_it_broke(server, tmp_path):
    server.cuts = [200_000, 100_000]
    download(server.url + "/a.zip", tmp_path / "a.zip", sha256=SHA256, pause=0.0)
    assert (tmp_path / "a.zip").read_bytes() == BODY
    assert server.ranges == [None, "bytes=200000-", "bytes=300000-"]


def test_a_later_call_resumes_an_earlier_one(server, tmp_path):
    server.cuts = [150_000, 0, 0, 0]
    target = tmp_path / "a.zip"
    with pytest.raises(DataError, match="150,000 bytes are kept"):
        download(server.url + "/a.zip", target, pause=0.0)
    assert not target.exists()
    server.ranges.clear()
    download(server.url + "/a.zip", target, sha256=SHA256)
    assert server.ranges == ["bytes=150000-"]
    assert target.read_bytes() == BODY


def test_a_server_that_cannot_resume_is_read_from_the_start(server, tmp_path):
    server.resumes = False
    server.cuts = [200_000]
    download(server.url + "/a.zip", tmp_path / "a.zip", sha256=SHA256, pause=0.0)
    assert (tmp_path / "a.zip").read_bytes() == BODY


def test_a_finished_part_is_only_checked(server, tmp_path):
    (tmp_path / "a.zip.part").write_bytes(BODY)
    download(server.url + "/a.zip", tmp_path / "a.zip", sha256=SHA256)
    assert (tmp_path / "a.zip").read_bytes() == BODY


def test_a_part_that_is_too_long_is_thrown_away(server, tmp_path):
    (tmp_path / "a.zip.part").write_bytes(BODY + b"?")
    download(server.url + "/a.zip", tmp_path / "a.zip", sha256=SHA256)
    assert (tmp_path / "a.zip").read_bytes() == BODY


def test_an_unknown_length_is_fine(server, tmp_path):
    seen = []
    download(
        server.url + "/unknown-length.zip",
        tmp_path / "a.zip",
        sha256=SHA256,
        progress=lambda *s: seen.append(s),
    )
    assert seen[-1][:2] == (len(BODY), 0)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [({"sha256": "0" * 64}, SHA256), ({"sha256": SHA256, "md5": "0" * 32}, MD5)],
)
def test_a_wrong_checksum_removes_the_file(server, tmp_path, wanted, found):
    with pytest.raises(DataError, match=f"checksum {found} instead of 0000") as caught:
        download(server.url + "/a.zip", tmp_path / "a.zip", **wanted)
    assert list(tmp_path.iterdir()) == []
    assert "\n" not in str(caught.value)


def test_without_a_checksum_the_first_download_is_remembered(server, tmp_path):
    target = tmp_path / "a.zip"
    download(server.url + "/a.zip", target)
    pin = tmp_path / "a.zip.sha256"
    assert pin.read_text().strip() == SHA256
    target.unlink()
    server.body = BODY[:-1] + b"?"
    with pytest.raises(
        DataError, match=r"SHA-256 .* delete .*a.zip.sha256 if you trust the new file"
    ):
        download(server.url + "/a.zip", target)
    assert [file.name for file in tmp_path.iterdir()] == ["a.zip.sha256"]
    pin.unlink()
    download(server.url + "/a.zip", target)
    assert target.read_bytes() == server.body


@pytest.mark.parametrize("name", ["a.zip", "unknown-length.zip"])
def test_a_file_that_is_too_large_is_refused_before_it_fills_the_disk(server, tmp_path, name):
    """By the length that the server says, and by what arrives where it says none."""
    with pytest.raises(DataError, match="has more than 300,000 bytes"):
        download(f"{server.url}/{name}", tmp_path / "a.zip", sha256=SHA256, most=300_000)
    assert list(tmp_path.iterdir()) == []
    download(f"{server.url}/{name}", tmp_path / "a.zip", sha256=SHA256, most=len(BODY))
    assert (tmp_path / "a.zip").read_bytes() == BODY


def test_404_and_a_dead_server_say_so(server, tmp_path):
    with pytest.raises(DataError, match="answered 404 Not Found"):
        download(server.url + "/missing.zip", tmp_path / "a.zip")
    assert not (tmp_path / "a.zip").exists()
    url = server.url
    server.shutdown()
    server.server_close()
    with pytest.raises(DataError, match="cannot be reached"):
        download(url + "/a.zip", tmp_path / "a.zip", timeout=2)


def test_a_folder_that_cannot_be_made_says_so(server, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be created"):
        download(server.url + "/a.zip", tmp_path / "file" / "a.zip")


def test_written_aside_leaves_all_or_nothing(tmp_path):
    target = tmp_path / "sub" / "x.bin"

    def write_half():
        with atomic_write(target) as part:
            part.write_bytes(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()
    assert list(target.parent.iterdir()) == []
    with atomic_write(target) as part:
        part.write_bytes(b"whole")
    assert [file.name for file in target.parent.iterdir()] == ["x.bin"]
    assert file_md5(target) == hashlib.md5(b"whole", usedforsecurity=False).hexdigest()


def test_cache_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("DISCREET_CACHE", str(tmp_path / "a"))
    assert cache_folder() == tmp_path / "a"
    monkeypatch.delenv("DISCREET_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "discreet"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "discreet"
