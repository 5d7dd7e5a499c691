"""What a client wants of its session: the parameters of the startup message.

Here: StartupParameters, read_startup(), the three spellings inside `options`, negotiate().
Not here: which settings exist and what they may be (the session), the message's bytes (messages/frontend.py).

The same setting can be said in three ways, since not every driver lets its user add a startup parameter:

    picodata_stmt_invalidation=true                    a parameter of the message: wins
    options='-c sql_motion_row_max=1 --forward=off'    PostgreSQL's spelling; \\ keeps a blank
    options='sql_motion_row_max=1,forward=off'         Picodata's
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from shoal.errors import FeatureNotSupported, InvalidAuthorization, InvalidParameterValue
from shoal.pgwire.messages import NegotiateProtocolVersion, StartupMessage

MAJOR: Final = 3
MINOR: Final = 0

# Names that ask for something of the protocol itself, not of the session.
_PROTOCOL_OPTION_PREFIX: Final = "_pq_."


@dataclass(frozen=True, slots=True, kw_only=True)
class StartupParameters:
    user: str
    database: str
    application_name: str
    settings: Mapping[str, str]  # all others, names in lower case, known to the session or not
    unknown_protocol_options: tuple[str, ...]


def read_startup(message: StartupMessage) -> StartupParameters:
    """What the message asks for. What it says wrongly is an error, which ends the connection."""
    if message.major != MAJOR:
        raise FeatureNotSupported(
            f"unsupported protocol version {message.major}.{message.minor}: this server speaks {MAJOR}.{MINOR}"
        )
    direct: dict[str, str] = {}
    protocol_options: list[str] = []
    for name, text in message.parameters:  # of repetitions the last one wins
        if name.startswith(_PROTOCOL_OPTION_PREFIX):
            protocol_options.append(name)
        else:
            direct[name.lower()] = text
    user = direct.pop("user", "")
    if not user:
        raise InvalidAuthorization("the startup message names no user")
    database = direct.pop("database", "") or user
    if direct.pop("replication", "false").lower() not in ("false", "off", "no", "0"):
        raise FeatureNotSupported("replication connections are not supported")
    settings = dict(read_options(direct.pop("options", ""))) | direct
    application_name = settings.pop("application_name", "")
    return StartupParameters(
        user=user,
        database=database,
        application_name=application_name,
        settings=MappingProxyType(settings),
        unknown_protocol_options=tuple(protocol_options),
    )


def negotiate(message: StartupMessage) -> NegotiateProtocolVersion | None:
    """What to answer a client that asked for more protocol than there is; it decides whether to go on."""
    unknown = read_startup(message).unknown_protocol_options
    if message.minor <= MINOR and not unknown:
        return None
    return NegotiateProtocolVersion(minor=MINOR, unknown_options=unknown)


def read_options(options: str) -> Iterator[tuple[str, str]]:
    """The settings in the text of `options`, in order: names in lower case, repetitions included."""
    words = iter(_words(options))
    for word in words:
        if word == "-c":
            yield _setting(next(words, ""), word)
        elif word.startswith("-c"):
            yield _setting(word[2:], word)
        elif word.startswith("--"):
            name, text = _setting(word[2:], word)
            yield name.replace("-", "_"), text
        elif word.startswith("-"):
            raise InvalidParameterValue(f'unknown switch "{word}" in the startup options')
        else:
            for item in filter(None, word.split(",")):
                yield _setting(item, item)


_WORD: Final = re.compile(r"(?:[^\s\\]|\\.)+", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


def _words(options: str) -> list[str]:
    """Parted at blanks; a backslash makes the next character part of the word."""
    return [_ESCAPED.sub(r"\1", word) for word in _WORD.findall(options)]


def _setting(text: str, said: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise InvalidParameterValue(f'"{said}" in the startup options is not of the form name=value')
    return name.lower(), value
