// The protocol's TypeScript SDK as a client that authorizes itself: calls tools, and prints their answers in a line.
import { UnauthorizedError } from '@modelcontextprotocol/sdk/client/auth.js';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

const back = 'http://localhost:9/back';
const kept = {};
let code;
const provider = {
  redirectUrl: back,
  clientMetadata: {
    client_name: 'test', redirect_uris: [back], grant_types: ['authorization_code', 'refresh_token'],
    response_types: ['code'], token_endpoint_auth_method: 'none',
  },
  clientInformation: () => kept.client,
  saveClientInformation: (client) => { kept.client = client; },
  tokens: () => kept.tokens,
  saveTokens: (tokens) => { kept.tokens = tokens; },
  codeVerifier: () => kept.verifier,
  saveCodeVerifier: (verifier) => { kept.verifier = verifier; },
  // As a browser: redirects are followed until they are back.
  async redirectToAuthorization(url) {
    for (let next = String(url); ;) {
      const answer = await fetch(next, { redirect: 'manual' });
      if (answer.status !== 302) throw new Error(`${next}: ${answer.status} ${await answer.text()}`);
      next = answer.headers.get('location');
      if (!next.startsWith(back)) continue;
      code = new URL(next).searchParams.get('code');
      return;
    }
  },
};
const url = new URL(process.argv[2]);
const connect = async () => {
  const client = new Client({ name: 'callgate-oauth', version: '1' });
  const transport = new StreamableHTTPClientTransport(url, { authProvider: provider });
  try {
    await client.connect(transport);
  } catch (error) {
    if (!(error instanceof UnauthorizedError)) throw error;
    await transport.finishAuth(code);
    return connect();
  }
  return client;
};
const client = await connect();
const answers = [];
for (const [name, args] of [['look', { n: 1 }], ['expire', {}], ['look', { n: 2 }]]) {
  const answer = await client.callTool({ name, arguments: args });
  answers.push(JSON.parse(answer.content[0].text));
}
console.log(JSON.stringify(answers));
await client.close();
