/* TensorBoard's event files. A TFRecord is: length (8 bytes), masked CRC-32C of it, the data, masked CRC-32C of that.
   The data is an Event: wall_time = 1 (double), step = 2 (varint), and one of file_version = 3 (string), session_log =
   7, whose status = 1 is 1 for a start, or summary = 5, whose value = 1 has tag = 1 (string) and simple_value = 2
   (float). */
#include <fcntl.h>
#include <unistd.h>

#include "base/host.h"
#include "report/report.h"

struct TfEvents {
    int fd;
    char *path;
};

static void put_varint(Buf *b, uint64_t v)
{
    do {
        unsigned char byte = (unsigned char)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));
        buf_append(b, &byte, 1);
        v >>= 7;
    } while (v);
}

static void put_key(Buf *b, unsigned field, unsigned wire) { put_varint(b, field << 3 | wire); }

static void put_bytes(Buf *b, unsigned field, const void *data, size_t len)
{
    put_key(b, field, 2);
    put_varint(b, len);
    buf_append(b, data, len);
}

static Status write_record(TfEvents *t, const Buf *event)
{
    Buf record = {0};
    uint64_t length = event->len;
    uint32_t crc = crc32c_mask(crc32c(0, &length, sizeof length));
    buf_append(&record, &length, sizeof length);
    buf_append(&record, &crc, sizeof crc);
    buf_append(&record, event->data, event->len);
    crc = crc32c_mask(crc32c(0, event->data, event->len));
    buf_append(&record, &crc, sizeof crc);
    Status status = file_write_all(t->fd, t->path, record.data, record.len);
    buf_free(&record);
    return status;
}

static void begin_event(Buf *event, int64_t step)
{
    double now = clock_wall();
    put_key(event, 1, 1);
    buf_append(event, &now, sizeof now);
    put_key(event, 2, 0);
    put_varint(event, (uint64_t)step);
}

Status tfevents_open(TfEvents **events, const char *output_dir, int64_t step)
{
    static const char version[] = "brain.Event:2", start[] = {1 << 3, 1};
    char host[128];
    TfEvents *t = mem_alloc(sizeof *t);
    Buf event = {0};
    host_name(host, sizeof host);
    t->path =
        mem_printf("%s/events.out.tfevents.%010.0f.%s.%d.0", output_dir, floor(clock_wall()), host, (int)getpid());
    Status status = file_open_regular(t->path, O_WRONLY | O_CREAT | O_APPEND, &t->fd);
    begin_event(&event, 0);
    put_bytes(&event, 3, version, sizeof version - 1);
    if (status == OK) status = write_record(t, &event);
    event.len = 0;
    begin_event(&event, step + 1); /* TensorBoard then drops this step and later ones of older files */
    put_bytes(&event, 7, start, sizeof start);
    if (status == OK) status = write_record(t, &event);
    buf_free(&event);
    if (status != OK)
        tfevents_close(t);
    else
        *events = t;
    return status;
}

Status tfevents_scalar(TfEvents *t, int64_t step, const char *tag, double value)
{
    Buf event = {0}, summary = {0}, entry = {0};
    float simple = (float)value;
    put_bytes(&entry, 1, tag, strlen(tag));
    put_key(&entry, 2, 5);
    buf_append(&entry, &simple, sizeof simple);
    put_bytes(&summary, 1, entry.data, entry.len);
    begin_event(&event, step);
    put_bytes(&event, 5, summary.data, summary.len);
    Status status = write_record(t, &event);
    BUF_FREE(&event, &summary, &entry);
    return status;
}

void tfevents_close(TfEvents *t)
{
    if (!t) return;
    if (t->fd >= 0) close(t->fd);
    MEM_FREE(t->path, t);
}
