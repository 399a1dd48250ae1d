// One scenario with the official `openai` SDK for Node against a running gateway; prints what it saw as JSON.
//
//     node chat.js SCENARIO        with TT_URL (the gateway's base URL) and TT_KEY in the environment
//
// Retries are the SDK's own. The caller compares the facts with what they should be.
"use strict";

const { OpenAI, APIError } = require("openai");

const ASK = { model: "m1", messages: [{ role: "user", content: "say something" }] };
let sent = 0;

const sdk = new OpenAI({
  baseURL: process.env.TT_URL + "/v1",
  apiKey: process.env.TT_KEY,
  timeout: 20_000,
  fetch: (...call) => {
    sent += 1;
    return fetch(...call);
  },
});

const chat = (more) => sdk.chat.completions.create({ ...ASK, ...more });
const usageOf = (answer) => answer.usage && [answer.usage.prompt_tokens, answer.usage.completion_tokens];

async function answer() {
  const whole = await chat();
  return { text: whole.choices[0].message.content, usage: usageOf(whole) };
}

async function stream() {
  const facts = { text: "", usage: [] };
  for await (const chunk of await chat({ stream: true })) {
    facts.text += chunk.choices[0]?.delta.content ?? "";
    if (chunk.usage) facts.usage.push(usageOf(chunk));
  }
  return facts;
}

// What the SDK makes of one more request.
async function caught() {
  sent = 0;
  try {
    await chat();
  } catch (error) {
    if (!(error instanceof APIError)) throw error;
    return {
      attempts: sent,
      error: error.constructor.name,
      status: error.status,
      type: error.type,
      code: error.code,
      refused_by: error.error.refused_by ?? null,
      should_retry: error.headers.get("x-should-retry"),
      request_id_is_the_header: Boolean(error.requestID) && error.requestID === error.headers.get("x-request-id"),
    };
  }
  return { attempts: sent, error: null };
}

async function refused() {
  await chat();
  return caught();
}

async function held() {
  const open = await chat({ stream: true });
  await open[Symbol.asyncIterator]().next();
  const facts = await caught();
  open.controller.abort();
  return facts;
}

const scenario = { answer, stream, caught, refused, held }[process.argv[2]];
scenario().then((facts) => console.log(JSON.stringify(facts)));
