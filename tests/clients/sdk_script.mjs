// What the scripted model says to the SDKs: a call of the tool "weather", then an answer; a long
// story; and in JSON mode an object.
import { dsmlCalls } from './support.mjs';

export const kArguments = { city: 'Oslo "north"\n⛄', days: 3, units: { wind: ['m/s'] } };
export const kCallAnswer = 'It snows, take a coat.';
export const kThought = 'I look it up.';

export const kScripts = [
  { pattern: '<tool_result>', answer: `The tool has answered.</think>${kCallAnswer}` },
  {
    pattern: 'weather',
    answer: `${kThought}</think>One moment.${
      dsmlCalls({ name: 'weather', arguments: kArguments })}`,
  },
  { pattern: 'story', answer: `Long.</think>${'once upon a time '.repeat(100)}` },
  { pattern: 'object', answer: 'As told.</think>{"sea": "blue", "depth": [1, 2]}' },
  { pattern: '', answer: 'Short.</think>Hello there.' },
];
export const kSchema = {
  type: 'object',
  properties: {
    city: { type: 'string' },
    days: { type: 'integer' },
    units: { type: 'object', properties: { wind: { type: 'array', items: { type: 'string' } } } },
  },
  required: ['city'],
};
