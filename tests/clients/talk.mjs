// The TypeScript SDK's clients: lists the tools, calls one, and prints what they heard as JSON.
//   node talk.mjs '{"sdk": 1, "url": "http://…", "tool": "read", "args": {…}}'
//   node talk.mjs '{"sdk": 2, "era": "2026-07-28", "command": ["notewright", "serve", …], "tool": …}'
//   node talk.mjs '{"sdk": 2, "url": "http://…", "auth": {"clientId": …, "clientSecret": …, "expectedIssuer": …}, …}'
import * as v2 from "@modelcontextprotocol/client";
import * as v2stdio from "@modelcontextprotocol/client/stdio";
import { ClientCredentialsProvider } from "@modelcontextprotocol/sdk/client/auth-extensions.js";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const asked = JSON.parse(process.argv[2]);
const v1 = { Client, ClientCredentialsProvider, StdioClientTransport, StreamableHTTPClientTransport };
const sdk = asked.sdk === 1 ? v1 : { ...v2, ...v2stdio };

function transport() {
  const authProvider = asked.auth && new sdk.ClientCredentialsProvider(asked.auth);
  if (asked.url) return new sdk.StreamableHTTPClientTransport(new URL(asked.url), { authProvider });
  const [command, ...args] = asked.command;
  return new sdk.StdioClientTransport({ command, args, stderr: "inherit" });
}

const era = asked.era ? { versionNegotiation: { mode: { pin: asked.era } } } : {};
const client = new sdk.Client({ name: "talk", version: "1" }, era);
await client.connect(transport());
const { tools } = await client.listTools();
const answer = await client.callTool({ name: asked.tool, arguments: asked.args });
let refusal;
try {
  refusal = (await client.callTool({ name: "no_such_tool", arguments: {} })).isError ? "answer" : "none";
} catch (error) {
  refusal = error.code;
}
await client.close();
console.log(JSON.stringify({ tools: tools.map((tool) => tool.name), content: answer.content, refusal }));
