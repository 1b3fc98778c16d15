// A real authorization server for the tests: oidc-provider, told on its standard input which keys to sign with.
//   node provider.mjs '{"path": "/realms/home", "keys": [JWK, …], "clients": […]}'
// It says {"issuer": …} when it listens. A line {"keys": […]} rotates the keys and is answered by {"rotated": true};
// {"count": "/jwks"} is answered by how often that path was asked for. It ends with its standard input.
import http from "node:http";
import readline from "node:readline";
import Provider from "../clients/node_modules/oidc-provider/lib/index.js";

console.info = console.warn = console.error; // its good advice is not for the reader of the answers
const SCOPES = [
  "notes:read notes:write notes:admin",
  "workspace:examples workspace:work surface:notes surface:lens",
  "kb.reader kb.editor unrelated",
].join(" ");
const told = JSON.parse(process.argv[2]);
const prefix = told.path ?? "";
const counted = new Map();
let issuer;
let provider;

// What a client's tokens are like is in its name: agent, opaque-agent, ES256-agent.
function resourceServer(_ctx, resource, client) {
  const [kind] = client.clientId.split("-");
  const opaque = kind === "opaque";
  const alg = ["PS256", "ES256", "EdDSA"].includes(kind) ? kind : "RS256";
  return {
    scope: SCOPES,
    audience: resource,
    accessTokenTTL: 600,
    accessTokenFormat: opaque ? "opaque" : "jwt",
    ...(opaque ? {} : { jwt: { sign: { alg } } }),
  };
}

function made(keys) {
  return new Provider(issuer, {
    jwks: { keys },
    clients: told.clients,
    scopes: ["openid", "offline_access"],
    findAccount: (_ctx, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
    issueRefreshToken: async (_ctx, client) => client.grantTypeAllowed("refresh_token"),
    cookies: { keys: ["of no importance"] },
    ttl: { AccessToken: 600, ClientCredentials: 600, IdToken: 600, Session: 600, Interaction: 600, Grant: 600 },
    features: {
      clientCredentials: { enabled: true },
      devInteractions: { enabled: true },
      introspection: { enabled: true, allowedPolicy: (_ctx, client) => client.clientId === "notewright" },
      revocation: { enabled: true },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: resourceServer,
        defaultResource: (_ctx, _client, oneOf) => oneOf ?? undefined,
        useGrantedResource: () => true,
      },
    },
  });
}

const server = http.createServer((request, response) => {
  const { pathname } = new URL(request.url, issuer);
  counted.set(pathname, (counted.get(pathname) ?? 0) + 1);
  if (!pathname.startsWith(prefix)) {
    response.writeHead(404).end();
    return;
  }
  request.originalUrl = request.url;
  request.url = request.url.slice(prefix.length);
  provider.callback()(request, response);
});

server.listen(told.port ?? 0, "127.0.0.1", () => {
  issuer = `http://127.0.0.1:${server.address().port}${prefix}`;
  provider = made(told.keys);
  console.log(JSON.stringify({ issuer }));
});

for await (const line of readline.createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line);
  if (asked.keys) {
    provider = made(asked.keys);
    console.log(JSON.stringify({ rotated: true }));
  } else {
    console.log(JSON.stringify({ count: counted.get(prefix + asked.count) ?? 0 }));
  }
}
process.exit(0);
