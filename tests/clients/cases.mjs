// What the JavaScript clients ask, and how they report: JSON in, JSON out.

export const ANSWER = "What is the capital of France?";
export const OBJECT_QUESTION = "Make up a person.";
export const TOOLS_QUESTION = "What is the weather in Montréal for 3 days?";

export const WEATHER = {
  name: "weather",
  description: "The weather of a city.",
  parameters: {
    type: "object",
    properties: { city: { type: "string" }, days: { type: "integer" } },
    required: ["city", "days"],
    additionalProperties: false,
  },
};

/** The tool itself: notes what it was called with. */
export function weather(given, calls) {
  calls.push(given);
  return `SUNNY in ${given.city}`;
}

/** The program's one argument is a list of [case, address, model]; it prints a list of what each reports. */
export async function main(cases) {
  const reports = [];
  for (const [name, url, model] of JSON.parse(process.argv[2])) reports.push(await cases[name](url, model));
  console.log(JSON.stringify(reports));
}
