// openai-node, as people use it: see test_clients.py for what each case must report.
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";
import { ANSWER, OBJECT_QUESTION, TOOLS_QUESTION, WEATHER, main, weather } from "./cases.mjs";

const client = (url) => new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
const messages = [{ role: "user", content: ANSWER }];
const settings = { temperature: 0 };

async function answer(url, model) {
  const { choices, usage } = await client(url).chat.completions.create({ ...settings, model, messages });
  const { content, reasoning_content } = choices[0].message;
  return { text: content, reasoning: reasoning_content ?? "", finish: choices[0].finish_reason, usage };
}

async function stream(url, model) {
  const events = client(url).chat.completions.stream({ ...settings, model, messages, stream_options: { include_usage: true } });
  const pieces = [];
  let reasoning = "";
  events.on("content", (piece) => pieces.push(piece));
  events.on("chunk", ({ choices }) => (reasoning += choices[0]?.delta.reasoning_content ?? ""));
  const { choices, usage } = await events.finalChatCompletion();
  return { text: choices[0].message.content, reasoning, pieces, finish: choices[0].finish_reason, usage };
}

async function tools(url, model) {
  const calls = [];
  const runner = client(url).chat.completions.runTools({
    ...settings,
    model,
    messages: [{ role: "user", content: TOOLS_QUESTION }],
    tools: [
      {
        type: "function",
        function: { ...WEATHER, parse: JSON.parse, function: (given) => weather(given, calls) },
      },
    ],
  });
  return { text: await runner.finalContent(), calls };
}

async function stream_tools(url, model) {
  const calls = [];
  const runner = client(url).chat.completions.runTools({
    ...settings,
    model,
    stream: true,
    messages: [{ role: "user", content: TOOLS_QUESTION }],
    tools: [
      {
        type: "function",
        function: { ...WEATHER, parse: JSON.parse, function: (given) => weather(given, calls) },
      },
    ],
  });
  return { text: await runner.finalContent(), calls };
}

async function structured(url, model) {
  const { choices } = await client(url).chat.completions.parse({
    ...settings,
    model,
    messages: [{ role: "user", content: OBJECT_QUESTION }],
    response_format: zodResponseFormat(z.object({ name: z.string(), age: z.number().int() }), "person"),
  });
  return choices[0].message.parsed;
}

await main({ answer, stream, tools, stream_tools, structured });
