"use strict";
// Serves a program that speaks MCP over stdio as MCP over HTTP, and ends when that program ends.
//
//     node -e THIS -- PORT PROGRAM [ARGUMENT...]
//
// One program answers all clients. There are no sessions, so any of several pods may answer a client. Each request is one
// POST to /mcp, and its answer is one JSON object. Only what Node.js itself has is used: nothing more is installed.

const { spawn } = require("node:child_process");
const http = require("node:http");

const [port, program, ...args] = process.argv.slice(1);

const MAX_REQUEST_BYTES = 4 << 20;
// All bodies that are being read.
const MAX_READING_BYTES = 64 << 20;
// One line of the program, and what the program has not read yet.
const MAX_LINE_BYTES = 32 << 20;
const MAX_UNREAD_BYTES = 64 << 20;
const MAX_WAITING = 1000;
const MAX_SECONDS = 600;
// What is told of the program's answer to `initialize`, if that is no good one.
const MAX_TOLD_CHARS = 500;
// How long a stop waits for answers.
const STOP_SECONDS = 20;

const HELLO = { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "convoke-bridge", version: "1" } };
// Codes of JSON-RPC, and one for what only a bridge can say.
const PARSE_ERROR = -32700;
const INVALID_REQUEST = -32600;
const METHOD_NOT_FOUND = -32601;
const BRIDGE_ERROR = -32000;

// Requests that the program has not answered, by the number that it knows them by: clients may use the same ids.
const waiting = new Map();
let last = 0;

const child = spawn(program, args, { stdio: ["pipe", "pipe", "inherit"] });
child.on("error", (error) => end(error.message));
child.on("exit", (code, signal) => end(`${program} ended with ${signal ? `signal ${signal}` : `exit code ${code}`}`));
// Its end is told by "exit".
child.stdin.on("error", () => {});

// A server has no reason to end: it is always a failure.
function end(message) {
  console.error(message);
  process.exit(1);
}

function say(message) {
  child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
}

// Asks the program. `done` gets the answer, with `result` or `error`. Gives the number of the request.
function ask(method, params, done) {
  const number = ++last;
  const timer = setTimeout(() => {
    forget(number, "it took too long");
    done({ error: { code: BRIDGE_ERROR, message: `no answer within ${MAX_SECONDS} seconds` } });
  }, MAX_SECONDS * 1000);
  waiting.set(number, { done, timer });
  say({ id: number, method, params });
  return number;
}

// Nobody waits for the answer to this request any more.
function forget(number, reason) {
  const asked = waiting.get(number);
  if (!asked) return;
  clearTimeout(asked.timer);
  waiting.delete(number);
  say({ method: "notifications/cancelled", params: { requestId: number, reason } });
}

// What the program says. Lines that are no messages are skipped: some programs log there.
let parts = [];
let bytes = 0;
child.stdout.on("data", (chunk) => {
  let from = 0;
  for (let at = chunk.indexOf(10); at >= 0; at = chunk.indexOf(10, from)) {
    parts.push(chunk.subarray(from, at));
    hear(Buffer.concat(parts).toString());
    [parts, bytes, from] = [[], 0, at + 1];
  }
  parts.push(chunk.subarray(from));
  bytes += chunk.length - from;
  if (bytes > MAX_LINE_BYTES) end(`${program} wrote a line of more than ${MAX_LINE_BYTES} bytes`);
});

function hear(line) {
  let message;
  try {
    message = JSON.parse(line);
  } catch {
    return;
  }
  if (message === null || typeof message !== "object") return;
  const { id, method } = message;
  if (method === undefined) {
    const asked = waiting.get(id);
    if (!asked) return;
    clearTimeout(asked.timer);
    waiting.delete(id);
    asked.done(message);
  } else if (id !== undefined) {
    // A question to a client. It cannot be told to which.
    const error = { code: METHOD_NOT_FOUND, message: "the bridge cannot ask clients" };
    say(method === "ping" ? { id, result: {} } : { id, error });
  }
}

function reply(response, status, body, headers = {}) {
  const text = body === undefined ? "" : JSON.stringify(body);
  const type = body === undefined ? {} : { "Content-Type": "application/json" };
  response.writeHead(status, { ...type, "Content-Length": Buffer.byteLength(text), ...headers });
  response.end(text);
}

function refuse(response, status, code, message, headers) {
  reply(response, status, { jsonrpc: "2.0", id: null, error: { code, message } }, headers);
}

// Bytes of the bodies that are being read.
let reading = 0;

// Reads the body of a request. `done` gets it, and the status of a refusal if it is not taken.
function body(request, done) {
  const chunks = [];
  let kept = 0;
  let refusal;
  const release = () => {
    reading -= kept;
    kept = 0;
    chunks.length = 0;
  };
  request.on("data", (chunk) => {
    if (refusal) return;
    if (kept + chunk.length > MAX_REQUEST_BYTES) refusal = 413;
    else if (reading + chunk.length > MAX_READING_BYTES) refusal = 503;
    if (refusal) return release();
    chunks.push(chunk);
    kept += chunk.length;
    reading += chunk.length;
  });
  request.on("end", () => {
    const text = Buffer.concat(chunks).toString();
    release();
    done(text, refusal);
  });
  // Also of a client that is gone before the end.
  request.on("close", release);
}

// The answer to one message of a client. `hello` is what the program said to the bridge's own `initialize`.
function answer(response, message, hello) {
  const { id, method, params } = message;
  // An answer or a notification: of which client cannot be told, so the program does not get it.
  if (method === undefined || id === undefined) return reply(response, 202);
  const done = ({ result, error }) => {
    reply(response, 200, error === undefined ? { jsonrpc: "2.0", id, result } : { jsonrpc: "2.0", id, error });
  };
  if (method === "initialize") return done(hello);
  if (method === "ping") return done({ result: {} });
  if (waiting.size >= MAX_WAITING || child.stdin.writableLength > MAX_UNREAD_BYTES) {
    return refuse(response, 503, BRIDGE_ERROR, "too many requests wait for an answer");
  }
  const number = ask(method, params, done);
  response.on("close", () => forget(number, "the client is gone"));
}

function serve(request, response, hello) {
  const path = request.url.split("?", 1)[0];
  if (path !== "/mcp" && path !== "/mcp/") return refuse(response, 404, INVALID_REQUEST, "MCP is served at /mcp");
  if (request.method !== "POST") return refuse(response, 405, INVALID_REQUEST, "only POST", { Allow: "POST" });
  // A page in a browser, which may have been led here by a name that is not its own.
  if (request.headers.origin !== undefined) return refuse(response, 403, INVALID_REQUEST, "no browsers");
  if (!/^application\/json\b/i.test(request.headers["content-type"] ?? "")) {
    return refuse(response, 415, INVALID_REQUEST, "Content-Type must be application/json");
  }
  body(request, (text, refusal) => {
    if (refusal === 413) return refuse(response, 413, INVALID_REQUEST, `more than ${MAX_REQUEST_BYTES} bytes`);
    if (refusal) return refuse(response, refusal, BRIDGE_ERROR, "too many bodies are being read");
    let message;
    try {
      message = JSON.parse(text);
    } catch {
      return refuse(response, 400, PARSE_ERROR, "this is not JSON");
    }
    if (message === null || typeof message !== "object" || Array.isArray(message) || message.jsonrpc !== "2.0") {
      return refuse(response, 400, INVALID_REQUEST, "this is not one message of JSON-RPC 2.0");
    }
    return answer(response, message, hello);
  });
}

let server;

function stop() {
  if (server === undefined) process.exit(0);
  server.close(() => process.exit(0));
  server.closeIdleConnections();
  setTimeout(() => process.exit(0), STOP_SECONDS * 1000);
}

// The first process of a container gets no signal that it does not ask for.
for (const signal of ["SIGTERM", "SIGINT"]) process.on(signal, stop);

// It listens once the program has answered: then it is ready.
ask("initialize", HELLO, (hello) => {
  if (hello.error !== undefined || hello.result === null || typeof hello.result !== "object") {
    const told = JSON.stringify(hello.error ?? hello.result ?? null).slice(0, MAX_TOLD_CHARS);
    return end(`${program} does not take part in MCP; its answer to initialize: ${told}`);
  }
  say({ method: "notifications/initialized" });
  server = http.createServer((request, response) => serve(request, response, hello));
  server.on("error", (error) => end(error.message));
  server.listen(Number(port));
});
