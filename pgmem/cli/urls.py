"""URLs as they may be printed."""

from __future__ import annotations

import re
from urllib.parse import unquote

from pgmem.errors import InvalidSettings

_SECRETS = ("password", "sslpassword", "oauth_client_secret")
_SECRET_WORD = re.compile(rf"\b(?:{'|'.join(_SECRETS)})\s*=\s*(?:'(?:[^'\\]|\\.)*'|(?:[^\s\\]|\\.)*)\s*")
_WORDS = re.compile(r"\s*\w+\s*=")


def without_password(url: str) -> str:
    """A libpq URL, or a string of ``keyword=value``, without what must stay secret; read as libpq reads it.

    Raises:
        InvalidSettings: it is neither, so nobody knows where in it a password is.

    Example:
        >>> without_password("postgresql://ann:secret@db/app?sslmode=require")
        'postgresql://ann@db/app?sslmode=require'
    """
    scheme, _, rest = url.partition("://")
    if scheme not in ("postgresql", "postgres"):
        if not _WORDS.match(url):
            raise InvalidSettings("the database's URL cannot be read: write it as postgresql://user@host:5432/database")
        return _SECRET_WORD.sub("", url).strip()
    # a password may hold what ends the host in other URLs, such as # and ?
    authority, slash, path = rest.partition("/")
    login, at, host = authority.rpartition("@")
    place, _, query = f"{login.partition(':')[0]}{at}{host}{slash}{path}".partition("?")
    kept = "&".join(part for part in query.split("&") if unquote(part.partition("=")[0]) not in _SECRETS)
    return f"{scheme}://{place}{'?' if kept else ''}{kept}"
