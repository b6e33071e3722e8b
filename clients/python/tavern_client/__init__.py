"""Tavern client: presence, messages, inbox and parties.

    async with Tavern("http://127.0.0.1:7400", user="ann") as tavern:
        game = tavern.channel("game#1")
        await game.subscribe(print)
        await game.publish({"hello": "world"})

`tavern_client.sync` offers the same API without asyncio.
"""
from .backend import Backend, sign_token, verify_webhook
from .channel import Channel, Message, Pattern, Published
from .client import Tavern
from .emitter import Stream
from .errors import TavernError
from .history import Position
from .me import Me
from .party import Party
from .presence import Client, Presence, User

__all__ = [
    "Backend", "Channel", "Client", "Me", "Message", "Party", "Pattern", "Position", "Presence", "Published", "Stream", "Tavern",
    "TavernError", "User", "sign_token", "verify_webhook",
]
__version__ = "0.1.0"
