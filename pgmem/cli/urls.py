"""URLs as they may be printed."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

_SECRETS = ("password", "sslpassword", "oauth_client_secret")
_PASSWORD_WORD = re.compile(rf"\b({'|'.join(_SECRETS)})\s*=\s*('(?:[^'\\]|\\.)*'|(?:[^\s\\]|\\.)*)\s*")


def without_password(url: str) -> str:
    """A libpq URL, or a string of ``keyword=value``, without what must stay secret.

    Example:
        >>> without_password("postgresql://ann:secret@db/app?sslmode=require")
        'postgresql://ann@db/app?sslmode=require'
    """
    if "://" not in url:
        return _PASSWORD_WORD.sub("", url).strip()
    parts = urlsplit(url)
    login, at, place = parts.netloc.rpartition("@")
    asked = parse_qsl(parts.query, keep_blank_values=True)
    kept = [(name, value) for name, value in asked if name not in _SECRETS]
    query = parts.query if len(kept) == len(asked) else urlencode(kept)
    return urlunsplit(parts._replace(netloc=login.partition(":")[0] + at + place, query=query))
