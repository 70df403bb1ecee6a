"""The protocol's Python SDK as a client that authorizes itself: calls tools, and prints their answers in a line."""

import asyncio
import json
import sys
import urllib.parse

import httpx2
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata

url, back, kept = sys.argv[1], "http://localhost:9/back", {}


class Storage:
    async def get_tokens(self):
        return kept.get("tokens")

    async def set_tokens(self, tokens):
        kept["tokens"] = tokens

    async def get_client_info(self):
        return kept.get("client")

    async def set_client_info(self, client_info):
        kept["client"] = client_info


async def visit(to):
    """As a browser: redirects are followed until they are back."""
    async with httpx2.AsyncClient() as browser:
        while not to.startswith(back):
            answer = await browser.get(to, follow_redirects=False)
            if answer.status_code != 302:
                raise SystemExit(f"{to}: {answer.status_code} {answer.text}")
            to = answer.headers["location"]
    kept["query"] = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(to).query))


async def come_back():
    query = kept["query"]
    return AuthorizationCodeResult(code=query["code"], state=query["state"], iss=query.get("iss"))


async def main():
    metadata = OAuthClientMetadata(client_name="test", redirect_uris=[back], token_endpoint_auth_method="none")
    auth = OAuthClientProvider(url, metadata, Storage(), visit, come_back)
    async with httpx2.AsyncClient(auth=auth, timeout=30) as http_client:
        async with Client(streamable_http_client(url, http_client=http_client), cache=None) as client:
            answers = []
            for name, arguments in [("look", {"n": 1}), ("expire", {}), ("look", {"n": 2})]:
                answer = await client.call_tool(name, arguments)
                answers.append(json.loads(answer.content[0].text))
            print(json.dumps(answers))


asyncio.run(main())
