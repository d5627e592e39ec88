#include "base/lock.h"
#include "tasks/pretrain/pretrain.h"
#include "tasks/pretrain/wiki/wiki.h"
#include "train/ranks/signals.h"

#define PART_SIZE     100000000
#define LEAST_PART    1000
#define MAX_ARTICLE   ((int64_t)4 << 20)
#define LEAST_ARTICLE 4096
#define MOST_ARTICLE  ((int64_t)1 << 30)

Status command_wiki(const Config *c)
{
    FolderLock lock = {0};
    if (!*c->input)
        return fail(E_USAGE, "give --input FILE: a MediaWiki dump (XML, .bz2 or .gz), a text file or a folder");
    if (c->source[OPTION_output_dir] == FROM_DEFAULT)
        return fail(E_USAGE, "give --output-dir DIR, where the text goes");
    WikiOptions o = {.input = c->input,
                     .output_dir = c->output_dir,
                     .threads = (int)c->threads,
                     .part_size = (size_t)(c->part_size ? c->part_size : PART_SIZE),
                     .max_article = (size_t)(c->max_article ? c->max_article : MAX_ARTICLE),
                     .column = *c->text_columns ? c->text_columns : "text",
                     .form = strcmp(c->text_form, "sentences") == 0    ? FORM_SENTENCES
                             : strcmp(c->text_form, "paragraphs") == 0 ? FORM_PARAGRAPHS
                                                                       : FORM_UNKNOWN,
                     .stop = signals_stop()};
    if (o.part_size < LEAST_PART)
        return fail(E_USAGE, "--part-size is %zu bytes; expected %d at least", o.part_size, LEAST_PART);
    if (o.max_article < LEAST_ARTICLE || (int64_t)o.max_article > MOST_ARTICLE)
        return fail(E_USAGE, "--max-article is %zu bytes; expected 4 KiB to 1 GiB", o.max_article);
    signals_install();
    TRY(lock_take(&lock, o.output_dir));
    Status status = wiki_make_text(&o, NULL);
    lock_release(&lock);
    return status;
}
