// One scenario with the official `@anthropic-ai/sdk` against a running gateway; prints what it saw as JSON.
//
//     node messages.js SCENARIO        with TT_URL (the gateway's base URL) and TT_KEY in the environment
//
// Retries are the SDK's own. The caller compares the facts with what they should be.
"use strict";

const { Anthropic, APIError } = require("@anthropic-ai/sdk");

const ASK = { model: "m1", max_tokens: 8, messages: [{ role: "user", content: "say something" }] };
let sent = 0;

const sdk = new Anthropic({
  baseURL: process.env.TT_URL,
  apiKey: process.env.TT_KEY,
  timeout: 20_000,
  fetch: (...call) => {
    sent += 1;
    return fetch(...call);
  },
});

function seen(message) {
  const used = message.usage;
  const cache = [used.cache_creation_input_tokens, used.cache_read_input_tokens];
  return { text: message.content[0].text, usage: [used.input_tokens, ...cache, used.output_tokens] };
}

async function answer() {
  const { data, response } = await sdk.messages.create(ASK).withResponse();
  return { ...seen(data), requests_left: response.headers.get("anthropic-ratelimit-requests-remaining") };
}

async function stream() {
  const events = [];
  const reading = sdk.messages.stream(ASK).on("streamEvent", (event) => events.push(event.type));
  return { ...seen(await reading.finalMessage()), events };
}

// What the SDK makes of one more request.
async function caught() {
  sent = 0;
  try {
    await sdk.messages.create(ASK);
  } catch (error) {
    if (!(error instanceof APIError)) throw error;
    const body = error.error;
    return {
      attempts: sent,
      error: error.constructor.name,
      status: error.status,
      kind: body.type,
      type: error.type,
      code: body.error.code,
      refused_by: body.error.refused_by ?? null,
      should_retry: error.headers.get("x-should-retry"),
      request_id_is_the_header:
        Boolean(error.requestID) &&
        error.requestID === body.request_id &&
        error.requestID === error.headers.get("x-request-id"),
    };
  }
  return { attempts: sent, error: null };
}

async function refused() {
  await sdk.messages.create(ASK);
  return caught();
}

async function held() {
  const open = await sdk.messages.create({ ...ASK, stream: true });
  await open[Symbol.asyncIterator]().next();
  const facts = await caught();
  open.controller.abort();
  return facts;
}

const scenario = { answer, stream, caught, refused, held }[process.argv[2]];
scenario().then((facts) => console.log(JSON.stringify(facts)));
