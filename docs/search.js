// The search of the built pages. It takes the index as a script, so that it also works where the pages are opened as files,
// without a server: there a browser reads no JSON and starts no worker.
//
//   search.html?q=large+page --> lunr: sections by their score --> their pages, best first, each with its best sections
"use strict";

const SECTIONS_MAX = 3;
const WORDS_SHOWN = 30;

function load(name, then) {
  const script = document.createElement("script");
  script.src = `${base_url}/search/${name}`;
  script.onload = then;
  document.head.append(script);
}

function indexed(sections) {
  return lunr(function () {
    this.ref("at");
    this.field("title", { boost: 10 });
    this.field("page", { boost: 10 });
    this.field("text");
    sections.forEach((section, at) => this.add({ at, ...section }));
  });
}

/** Sections with words of the question, or words that begin so; those with more and rarer words first. */
function found(index, sections, question) {
  const words = lunr.tokenizer(question.toLowerCase().replace(/[?!"'`()]/g, " "));
  const hits = index.query((query) => {
    for (const word of words) {
      query.term(word, { boost: 10 });
      query.term(word, { usePipeline: false, wildcard: lunr.Query.wildcard.TRAILING });
    }
  });
  const pages = new Map();
  for (const hit of hits) {
    const section = sections[hit.ref];
    if (!pages.has(section.page)) pages.set(section.page, []);
    pages.get(section.page).push(section);
  }
  return pages;
}

function element(name, text, href) {
  const made = document.createElement(name);
  made.textContent = text;
  if (href) made.href = `${base_url}/${href}`;
  return made;
}

function show(pages) {
  const results = document.getElementById("mkdocs-search-results");
  results.replaceChildren();
  if (!pages.size) results.append(element("p", results.dataset.noResultsText));
  for (const [page, sections] of pages) {
    const article = element("article", "");
    const heading = element("h3", "");
    heading.append(element("a", page, sections[0].location.split("#")[0]));
    article.append(heading);
    for (const section of sections.slice(0, SECTIONS_MAX)) {
      const paragraph = element("p", "");
      const text = section.text.split(/\s+/).slice(0, WORDS_SHOWN).join(" ");
      paragraph.append(element("a", section.title, section.location), ` ${text} …`);
      article.append(paragraph);
    }
    results.append(article);
  }
}

const input = document.getElementById("mkdocs-search-query");
if (input) {
  load("lunr.js", () => load("index.js", () => {
    const index = indexed(searchSections);
    const search = () => show(input.value.trim() ? found(index, searchSections, input.value) : new Map());
    input.value = new URLSearchParams(location.search).get("q") ?? "";
    input.addEventListener("input", search);
    search();
  }));
}
