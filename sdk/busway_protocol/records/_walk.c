/* The compiled twin of `RecordWalk`'s loop (see walk.py): over records that are plainly right, and not a step further.
 *
 * What lives here: stepping from record to record while each fills exactly the size it announces and has the offset behind the one
 * before it. What does not: what is wrong with a record. At the first one that is not plainly right this stops in front of it, and the
 * loop in Python goes on from there and tells. So whatever this takes, that takes too; and without a compiler that does all of it.
 *
 * Python's stable ABI of 3.11: one file serves every later version.
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

/* A zigzag varint below `stop`; NULL where it does not end there, or has more bits than 64. */
static const uint8_t *
varint(const uint8_t *at, const uint8_t *stop, int64_t *value)
{
    uint64_t bits = 0;
    for (int shift = 0; at < stop && shift < 63; shift += 7) {
        uint8_t byte = *at++;
        bits |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *value = (int64_t)(bits >> 1) ^ -(int64_t)(bits & 1);
            return at;
        }
    }
    return NULL;
}

/* Behind a length and so many bytes, none for a negative length; NULL where they reach beyond `stop`. */
static const uint8_t *
skipped(const uint8_t *at, const uint8_t *stop, int64_t *length)
{
    at = varint(at, stop, length);
    if (at == NULL || *length <= 0)
        return at;
    return *length <= stop - at ? at + *length : NULL;
}

/* Behind the headers of a record. */
static const uint8_t *
behind_headers(const uint8_t *at, const uint8_t *stop)
{
    int64_t count, length;
    at = varint(at, stop, &count);
    if (at == NULL || count < 0 || count > stop - at)
        return NULL;
    while (count-- > 0) {
        at = skipped(at, stop, &length);
        if (at == NULL || length < 0)
            return NULL;
        at = skipped(at, stop, &length);
        if (at == NULL)
            return NULL;
    }
    return at;
}

PyDoc_STRVAR(plain_doc,
"plain(data, position, number, last, keyless, most)\n--\n\n"
"Walk over records from `number`, which begins at byte `position`, to before `last`; stop in front of one that is not plainly right.\n\n"
"Places of records without a key are appended to the list `keyless` while it has fewer than `most`.\n"
"Returns (position, number, least and greatest timestamp delta or 0, how many had no key).");

static PyObject *
plain(PyObject *module, PyObject *arguments)
{
    PyObject *source, *keyless;
    Py_ssize_t position, number, last, most;
    Py_buffer view;
    if (!PyArg_ParseTuple(arguments, "OnnnO!n:plain", &source, &position, &number, &last, &PyList_Type, &keyless, &most))
        return NULL;
    if (PyObject_GetBuffer(source, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    const uint8_t *begin = view.buf, *end = begin + view.len, *at = begin;
    int64_t earliest = 0, latest = 0, without_key = 0;
    if (position >= 0 && position <= view.len)
        at += position;
    else
        last = number;
    for (; number < last; number++) {
        int64_t size, moment, offset, length, keys;
        const uint8_t *next = varint(at, end, &size), *stop, *told;
        if (next == NULL || size <= 0 || size > end - next)
            break;
        stop = next + size;
        next = varint(next + 1, stop, &moment); /* the attributes of a record are unused */
        if (next == NULL)
            break;
        told = next;
        next = varint(next, stop, &offset);
        /* Written as short as can be, or it is for the loop in Python to say whether that will do. */
        if (next == NULL || offset != number || (next - told > 1 && next[-1] == 0))
            break;
        next = skipped(next, stop, &keys);
        if (next == NULL)
            break;
        next = skipped(next, stop, &length);
        if (next == NULL)
            break;
        next = behind_headers(next, stop);
        if (next != stop)
            break;
        if (keys < 0) {
            without_key++;
            if (PyList_Size(keyless) < most) {
                PyObject *place = PyLong_FromSsize_t(number);
                if (place == NULL || PyList_Append(keyless, place) < 0) {
                    Py_XDECREF(place);
                    PyBuffer_Release(&view);
                    return NULL;
                }
                Py_DECREF(place);
            }
        }
        if (moment > latest)
            latest = moment;
        else if (moment < earliest)
            earliest = moment;
        at = stop;
    }
    position = at - begin;
    PyBuffer_Release(&view);
    return Py_BuildValue("nnLLL", position, number, (long long)earliest, (long long)latest, (long long)without_key);
}

static PyMethodDef methods[] = {{"plain", plain, METH_VARARGS, plain_doc}, {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_walk", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC
PyInit__walk(void)
{
    return PyModuleDef_Init(&definition);
}
