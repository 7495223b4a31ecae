// A list of the versions that a site has, above the search field. versions.json, beside the folders of the versions, names
// them; without it, as in a site of one version, there is no list.
addEventListener("DOMContentLoaded", async () => {
  const here = new URL(document.documentElement.dataset.content_root, location.href);
  const root = new URL("../", here);
  const answer = await fetch(new URL("versions.json", root)).catch(() => null);
  if (!answer || !answer.ok) return;
  const current = decodeURIComponent(here.pathname.split("/").at(-2));
  const list = document.createElement("select");
  list.setAttribute("aria-label", "Version");
  list.style.margin = "0.5rem var(--sidebar-item-spacing-horizontal)";
  for (const name of await answer.json()) list.add(new Option(name, name, false, name === current));
  list.addEventListener("change", async () => {
    const other = new URL(encodeURIComponent(list.value) + "/", root);
    // The same page, if the other version has it.
    const page = new URL(location.href.slice(here.href.length), other);
    const found = await fetch(page, { method: "HEAD" }).catch(() => null);
    location.href = found && found.ok ? page : new URL("docs/index.html", other);
  });
  document.querySelector(".sidebar-brand")?.after(list);
});
