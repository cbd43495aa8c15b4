"""URLs as they may be printed."""

import pytest

from pgmem.cli.urls import without_password
from pgmem.errors import InvalidSettings


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann:secret@db:5433/app?sslmode=require", "postgresql://ann@db:5433/app?sslmode=require"),
        ("postgresql://ann:se%40cret@db/app", "postgresql://ann@db/app"),
        ("postgresql://ann:a@secret@db/app", "postgresql://ann@db/app"),
        ("postgresql://ann:se#c?ret[@db/app", "postgresql://ann@db/app"),
        ("postgresql://ann:secret@db", "postgresql://ann@db"),
        ("postgresql://db/app?pass%77ord=secret&user=a%20b", "postgresql://db/app?user=a%20b"),
        ("password=a://secret host=db", "host=db"),
        ("postgresql://db/app?user=ann&password=secret", "postgresql://db/app?user=ann"),
        ("postgresql://ann@/app?host=%2Ftmp%2Fa&port=5432", "postgresql://ann@/app?host=%2Ftmp%2Fa&port=5432"),
        ("postgresql://ann:secret@[::1]:5432/app", "postgresql://ann@[::1]:5432/app"),
        ("postgres://ann@a:1,b:2/app", "postgres://ann@a:1,b:2/app"),
        ("host=db password=secret user=ann", "host=db user=ann"),
        ("host=db user=ann password='my \\'secret'", "host=db user=ann"),
        ("host=db password = my\\ secret user=ann", "host=db user=ann"),
        ("host=db sslpassword=secret", "host=db"),
    ],
)
def test_a_url_is_printed_without_its_secrets(url, shown):
    assert without_password(url) == shown


@pytest.mark.parametrize("url", ["ann:secret@db/app", "secret", "mysql://ann:secret@db/app"])
def test_what_cannot_be_read_is_not_printed(url):
    with pytest.raises(InvalidSettings) as caught:
        without_password(url)

    assert "secret" not in str(caught.value)
