// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reflector

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// encoding is the encoding of an answer. It follows from the first byte: a server
// may answer any request in JSON.
type encoding uint8

const (
	inProtobuf encoding = iota
	inJSON
)

// maxMessage bounds a frame or a list's item. etcd takes 1.5 MiB per object.
const maxMessage = 64 << 20

// Sizes of reads. A watch keeps its buffer, and most are idle; large events are read past it.
const listBuffer, frameBuffer = 32 << 10, 4 << 10

func sniff(r *bufio.Reader) (encoding, error) {
	first, err := r.Peek(1)
	if err != nil {
		return 0, err
	}
	if first[0] == '{' {
		return inJSON, nil
	}
	return inProtobuf, nil
}

// frames are the events of a watch. What next returns is valid until it is
// called again.
type frames interface {
	next() (typ string, object []byte, err error)
	encoding() encoding
}

func newFrames(r io.Reader) (frames, error) {
	br := bufio.NewReaderSize(r, frameBuffer)
	enc, err := sniff(br)
	if err != nil {
		return nil, err
	}
	if enc == inProtobuf {
		return &protobufFrames{r: br}, nil
	}
	return &jsonFrames{r: br}, nil
}

// protobufFrames are metav1.WatchEvents behind four bytes of length. Unlike the
// object in it, a WatchEvent has no envelope.
type protobufFrames struct {
	r   *bufio.Reader
	buf []byte
}

func (f *protobufFrames) encoding() encoding { return inProtobuf }

func (f *protobufFrames) next() (typ string, object []byte, err error) {
	dropLarge(&f.buf)
	var length [4]byte
	if _, err := io.ReadFull(f.r, length[:]); err != nil {
		return "", nil, err
	}
	frame, err := readMessage(f.r, &f.buf, uint64(binary.BigEndian.Uint32(length[:])))
	if err != nil {
		return "", nil, err
	}
	event, err := bytesField(frame, watchEventType)
	if err != nil {
		return "", nil, fmt.Errorf("watch event: %w", err)
	}
	if object, err = bytesField(frame, watchEventObject); err == nil {
		object, err = bytesField(object, rawExtensionRaw)
	}
	if err != nil {
		return "", nil, fmt.Errorf("watch event: %w", err)
	}
	return eventType(event), object, nil
}

// eventType returns the text without an allocation for the known ones.
func eventType(b []byte) string {
	for _, known := range [...]string{"ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"} {
		if string(b) == known {
			return known
		}
	}
	return string(b)
}

// readMessage reads n bytes into *buf, which grows as bytes arrive: the length
// may be wrong.
func readMessage(r io.Reader, buf *[]byte, n uint64) ([]byte, error) {
	if n > maxMessage {
		return nil, fmt.Errorf("message of %d bytes, more than %d", n, maxMessage)
	}
	if n <= maxKept {
		dropLarge(buf)
	}
	b := (*buf)[:0]
	for uint64(len(b)) < n {
		step := min(n-uint64(len(b)), max(listBuffer, uint64(cap(b)-len(b))))
		start := len(b)
		b = append(b, make([]byte, step)...)
		if _, err := io.ReadFull(r, b[start:]); err != nil {
			return nil, unexpectedEOF(err)
		}
	}
	*buf = b
	return b, nil
}

// maxKept is the largest buffer that is kept for the next message: each watch has one, and most of them wait.
const maxKept = 128 << 10

// dropLarge drops the buffer of a large message.
func dropLarge(buf *[]byte) {
	if cap(*buf) > maxKept {
		*buf = nil
	}
}

// unexpectedEOF makes an end of file an error where a message should go on.
func unexpectedEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// jsonFrames are metav1.WatchEvents, one per line.
type jsonFrames struct {
	r   *bufio.Reader
	buf []byte // of a line that is longer than the buffer of r
}

func (f *jsonFrames) encoding() encoding { return inJSON }

func (f *jsonFrames) next() (typ string, object []byte, err error) {
	line, err := f.line()
	if err != nil {
		return "", nil, err
	}
	if typ, object, ok := cutEvent(line); ok {
		return typ, object, nil
	}
	var e struct {
		Type   string          `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return "", nil, fmt.Errorf("watch event: %w", err)
	}
	return e.Type, e.Object, nil
}

// line reads a line, the last one also without its end.
func (f *jsonFrames) line() ([]byte, error) {
	dropLarge(&f.buf)
	f.buf = f.buf[:0]
	for {
		part, err := f.r.ReadSlice('\n')
		if err == nil && len(f.buf) == 0 {
			return part, nil
		}
		f.buf = append(f.buf, part...)
		switch {
		case len(f.buf) > maxMessage:
			return nil, fmt.Errorf("event of more than %d bytes", maxMessage)
		case err == nil, errors.Is(err, io.EOF) && len(f.buf) > 0:
			return f.buf, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

// cutEvent cuts the object out of an event as API servers write it, without a
// pass over the object.
func cutEvent(line []byte) (typ string, object []byte, ok bool) {
	rest, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte(`{"type":"`))
	if !ok {
		return "", nil, false
	}
	event, rest, ok := bytes.Cut(rest, []byte(`","object":`))
	if !ok || bytes.IndexByte(event, '"') >= 0 {
		return "", nil, false
	}
	object, ok = bytes.CutSuffix(rest, []byte("}"))
	return eventType(event), object, ok
}

// The numbers of the fields around objects.
var (
	watchEventType   = slim.FieldNumber[metav1.WatchEvent]("type")
	watchEventObject = slim.FieldNumber[metav1.WatchEvent]("object")
)

const (
	rawExtensionRaw protowire.Number = 1 // runtime.RawExtension has no JSON name for it
	unknownRaw      protowire.Number = 2 // nor has runtime.Unknown
	listMetadata    protowire.Number = 1 // of every list
	listItems       protowire.Number = 2
)

// bytesField returns the value of the message's field with this number, nil if
// it has none.
func bytesField(message []byte, number protowire.Number) (value []byte, err error) {
	for len(message) > 0 {
		num, typ, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		message = message[n:]
		if num == number && typ == protowire.BytesType {
			if value, n = protowire.ConsumeBytes(message); n < 0 {
				return nil, protowire.ParseError(n)
			}
		} else if n = protowire.ConsumeFieldValue(num, typ, message); n < 0 {
			return nil, protowire.ParseError(n)
		}
		message = message[n:]
	}
	return value, nil
}

// envelope is what objects and lists begin with in protobuf, before a
// runtime.Unknown.
var envelope = []byte("k8s\x00")

// openEnvelope returns the message of an object.
func openEnvelope(raw []byte) ([]byte, error) {
	raw, ok := bytes.CutPrefix(raw, envelope)
	if !ok {
		return nil, fmt.Errorf("object does not begin with %q", envelope)
	}
	return bytesField(raw, unknownRaw)
}

// decoder decodes the objects of one answer.
type decoder[P any] struct {
	codec    Codec[P]
	interner *slim.Interner
	verify   func(metav1.TypeMeta) error // of a list
	fit      func(obj any, message int)  // cuts down what there is no memory for
}

func (lw *listerWatcher[P]) newDecoder() *decoder[P] {
	return &decoder[P]{codec: lw.Codec, interner: slim.NewInterner(), verify: lw.verifyList, fit: lw.fit}
}

// object decodes an object: an item, or *metadataOnly if it cannot be read.
func (d *decoder[P]) object(enc encoding, raw []byte) runtime.Object {
	if enc == inJSON {
		return d.read(raw, inJSON)
	}
	message, err := openEnvelope(raw)
	if err != nil {
		return &metadataOnly{err: err}
	}
	return d.read(message, inProtobuf)
}

// read decodes an object without envelope.
func (d *decoder[P]) read(message []byte, enc encoding) runtime.Object {
	obj, err := d.codec.decode(enc, d.interner, message)
	if err == nil && obj.meta().Name == "" {
		err = errors.New("object has no name")
	}
	if err != nil {
		return d.readMetadata(message, enc, err)
	}
	d.fit(obj.pointer(), len(message))
	return obj
}

// metadata decodes only the metadata of an object.
func (d *decoder[P]) metadata(enc encoding, raw []byte, cause error) *metadataOnly {
	if enc == inProtobuf {
		message, err := openEnvelope(raw)
		if err != nil {
			return &metadataOnly{err: err}
		}
		raw = message
	}
	return d.readMetadata(raw, enc, cause)
}

func (d *decoder[P]) readMetadata(message []byte, enc encoding, cause error) *metadataOnly {
	n := &metadataOnly{err: cause}
	var err error
	if enc == inJSON {
		n.meta, err = d.codec.DecodeJSONMeta(message)
	} else {
		n.meta, err = d.codec.DecodeProtobufMeta(d.interner, message)
	}
	if err == nil && n.meta.Name == "" {
		err = errors.New("object has no name")
	}
	if err != nil {
		n.meta = slim.Meta{}
		n.err = errors.Join(cause, err)
	}
	return n
}

// mark is what is read of a bookmark, which carries nothing but metadata.
type mark struct {
	markMeta `json:"metadata"`
}

type markMeta struct {
	slim.Meta
	Annotations slim.Subset[initialEventsEnd] `json:"annotations"`
}

type initialEventsEnd struct{}

func (initialEventsEnd) Keep(key string) bool { return key == metav1.InitialEventsAnnotationKey }

var markCodec = sync.OnceValues(slim.Metadata[mark])

func (d *decoder[P]) bookmark(enc encoding, raw []byte) (*bookmark, error) {
	codec, err := markCodec()
	if err != nil {
		return nil, err
	}
	var m mark
	if enc == inJSON {
		err = codec.DecodeJSON(raw, &m)
	} else if raw, err = openEnvelope(raw); err == nil {
		err = codec.DecodeProtobuf(d.interner, raw, &m)
	}
	if err != nil {
		return nil, fmt.Errorf("bookmark: %w", err)
	}
	return &bookmark{
		revision: m.ResourceVersion.String(),
		end:      m.Annotations.Get(metav1.InitialEventsAnnotationKey) == "true",
	}, nil
}

func decodeStatus(enc encoding, raw []byte) (*metav1.Status, error) {
	status := &metav1.Status{}
	var err error
	if enc == inJSON {
		err = json.Unmarshal(raw, status)
	} else if raw, err = openEnvelope(raw); err == nil {
		err = status.Unmarshal(raw)
	}
	if err != nil {
		return nil, fmt.Errorf("status in a watch: %w", err)
	}
	return status, nil
}
