"use strict";
// Draws the charts, and draws them again when the reader turns from light to dark. Below each one
// are buttons that save it as it is seen.
(async () => {
  const { charts, themes } = JSON.parse(document.getElementById("data").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const views = new Map();

  function save(name, type) {
    views.get(name).toImageURL(type, type === "png" ? 2 : 1).then((url) => {
      const link = document.createElement("a");
      link.href = url;
      link.download = `${name}.${type}`;
      link.click();
    });
  }

  function buttons(name, place) {
    const row = document.createElement("p");
    row.className = "save";
    for (const type of ["svg", "png"]) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = `Save as ${type.toUpperCase()}`;
      button.addEventListener("click", () => save(name, type));
      row.append(button);
    }
    place.closest(".chart").after(row);
  }

  async function draw() {
    const shade = dark.matches ? "dark" : "light";
    for (const [name, spec] of Object.entries(charts)) {
      const place = document.getElementById(name);
      if (views.has(name)) views.get(name).finalize();
      else buttons(name, place);
      const { view } = await vegaEmbed(place, spec, {
        actions: false,
        ast: false,
        config: themes[shade],
        renderer: "canvas",
        tooltip: { theme: shade },
      });
      views.set(name, view);
    }
    document.documentElement.dataset.drawn = shade;
  }

  dark.addEventListener("change", draw);
  await draw();
})();
