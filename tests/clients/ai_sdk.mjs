// The Vercel AI SDK, as people use it: see test_clients.py for what each case must report.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { ANSWER, OBJECT_QUESTION, TOOLS_QUESTION, WEATHER, main, weather } from "./cases.mjs";

const options = (url, model) => ({
  model: createOpenAICompatible({ name: "hipfire", baseURL: `${url}/v1`, includeUsage: true, supportsStructuredOutputs: true })(model),
  temperature: 0,
  maxRetries: 0,
});

const looping = (url, model, calls) => ({
  ...options(url, model),
  prompt: TOOLS_QUESTION,
  stopWhen: stepCountIs(3),
  tools: {
    [WEATHER.name]: tool({
      description: WEATHER.description,
      inputSchema: z.object({ city: z.string(), days: z.number().int() }),
      execute: (given) => weather(given, calls),
    }),
  },
});

const usageOf = ({ inputTokens, outputTokens, totalTokens }) => ({
  prompt_tokens: inputTokens,
  completion_tokens: outputTokens,
  total_tokens: totalTokens,
});

async function answer(url, model) {
  const { text, reasoningText, finishReason, usage } = await generateText({ ...options(url, model), prompt: ANSWER });
  return { text, reasoning: reasoningText ?? "", finish: finishReason, usage: usageOf(usage) };
}

async function stream(url, model) {
  const result = streamText({ ...options(url, model), prompt: ANSWER });
  const pieces = [];
  for await (const piece of result.textStream) pieces.push(piece);
  return {
    text: await result.text,
    reasoning: (await result.reasoningText) ?? "",
    pieces,
    finish: await result.finishReason,
    usage: usageOf(await result.usage),
  };
}

async function tools(url, model) {
  const calls = [];
  return { text: (await generateText(looping(url, model, calls))).text, calls };
}

async function stream_tools(url, model) {
  const calls = [];
  return { text: await streamText(looping(url, model, calls)).text, calls };
}

async function structured(url, model) {
  const schema = z.object({ name: z.string(), age: z.number().int() });
  return (await generateObject({ ...options(url, model), schema, prompt: OBJECT_QUESTION })).object;
}

await main({ answer, stream, tools, stream_tools, structured });
