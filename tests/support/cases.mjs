// What scripts of node share: cases that are run, named and counted (./test reads the lines).

export function check(holds, what) {
  if (!holds) throw new Error(what);
}

export function checkEqual(found, expected, what) {
  const [a, b] = [JSON.stringify(found), JSON.stringify(expected)];
  if (a !== b) throw new Error(`${what}: found ${a}, expected ${b}`);
}

// Runs the cases, says how each went, and answers how many failed.
export async function runCases(cases) {
  let failed = 0;
  for (const [name, run] of Object.entries(cases)) {
    if (process.argv[2] && !name.includes(process.argv[2])) continue;
    const begun = Date.now();
    try {
      await run();
      console.log(`ok     ${name} (${Date.now() - begun} ms)`);
    } catch (error) {
      failed += 1;
      console.log(`FAILED ${name}: ${error.stack}`);
    }
  }
  return failed;
}
