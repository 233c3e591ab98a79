// Before the first paint, or a dark room sees a white flash. Not a module: modules wait.
(() => {
  const kName = 'minke.theme';
  let stored = null;
  try {
    stored = localStorage.getItem(kName);
  } catch {
    // Storage is switched off: the system's choice holds.
  }
  const root = document.documentElement;
  if (stored === 'dark' || stored === 'light') root.dataset.theme = stored;

  globalThis.minkeTheme = {
    isDark() {
      const theme = root.dataset.theme;
      return theme ? theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
    },
    toggle() {
      root.dataset.theme = this.isDark() ? 'light' : 'dark';
      try {
        localStorage.setItem(kName, root.dataset.theme);
      } catch {
        // It holds for this visit.
      }
    },
  };
})();
