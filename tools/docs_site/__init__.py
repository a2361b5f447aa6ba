"""The documentation site: README.md, docs/ and every file of the repository that these pages link to.

    python -m tools.docs_site            write build/docs/site; open its index.html
    python -m tools.docs_site FOLDER     write FOLDER/site

The site mirrors the repository: README.md is the first page, docs/glossary.md becomes docs/glossary.html. Relative
links therefore work in the site and on a git host. A linked file that is not Markdown (a sample, a configuration file)
becomes a page that shows its text.

| module       | what it does                                                          |
|--------------|-----------------------------------------------------------------------|
| `pages`      | finds the pages, and follows their links                              |
| `navigation` | derives the navigation from the folders                               |
| `dialect`    | translates the Markdown of git hosts to that of Python-Markdown       |
| `builder`    | writes the input of Zensical, and runs it                             |
"""
