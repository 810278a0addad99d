"use strict";
// Draws the charts, and draws them again when the reader turns from light to dark.
(async () => {
  const { charts, themes } = JSON.parse(document.getElementById("data").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  let views = [];

  async function draw() {
    for (const view of views) view.finalize();
    views = [];
    const shade = dark.matches ? "dark" : "light";
    for (const [name, spec] of Object.entries(charts)) {
      const place = document.getElementById(name);
      const { view } = await vegaEmbed(place, spec, {
        actions: false,
        ast: false,
        config: themes[shade],
        renderer: "canvas",
        tooltip: { theme: shade },
      });
      views.push(view);
    }
    document.documentElement.dataset.drawn = shade;
  }

  dark.addEventListener("change", draw);
  await draw();
})();
