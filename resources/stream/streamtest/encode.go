// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package streamtest

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"google.golang.org/protobuf/encoding/protowire"
)

// writer writes answers in the encoding that the client asked for.
type writer struct {
	http.ResponseWriter
	collection *collection
	protobuf   bool
	partial    bool // metadata only
	started    bool
}

func newWriter(w http.ResponseWriter, r *http.Request, c *collection) *writer {
	out := &writer{ResponseWriter: w, collection: c}
	best, _, _ := strings.Cut(r.Header.Get("Accept"), ",")
	out.partial = strings.Contains(best, ";as=PartialObjectMetadata")
	out.protobuf = strings.HasPrefix(best, runtime.ContentTypeProtobuf) && (c == nil || c.protobuf || out.partial)
	return out
}

func (w *writer) contentType() string {
	if w.protobuf {
		return runtime.ContentTypeProtobuf
	}
	return runtime.ContentTypeJSON
}

// envelop puts a message into the envelope of protobuf answers.
func envelop(apiVersion, kind string, message []byte) []byte {
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: apiVersion, Kind: kind}, Raw: message}
	b, err := unknown.Marshal()
	if err != nil {
		panic(err)
	}
	return append([]byte("k8s\x00"), b...)
}

func (w *writer) status(err *apierrors.StatusError) {
	status := err.Status()
	w.Header().Set("Content-Type", w.contentType())
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	code := int(status.Code)
	if code == 0 {
		code = http.StatusInternalServerError
	}
	w.WriteHeader(code)
	_, _ = w.Write(w.object("v1", "Status", &status))
}

// object encodes a type of metav1.
func (w *writer) object(apiVersion, kind string, object interface{ Marshal() ([]byte, error) }) []byte {
	if w.protobuf {
		message, err := object.Marshal()
		if err != nil {
			panic(err)
		}
		return envelop(apiVersion, kind, message)
	}
	text, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	var fields map[string]any
	_ = json.Unmarshal(text, &fields)
	fields["apiVersion"], fields["kind"] = apiVersion, kind
	text, _ = json.Marshal(fields)
	return text
}

// bytes encodes an object that is stored; with its envelope, if asked for.
func (w *writer) bytes(obj *stored, enveloped bool) []byte {
	gv, kind := w.collection.kind.GroupVersion().String(), w.collection.kind.Kind
	if w.partial {
		partial := &metav1.PartialObjectMetadata{ObjectMeta: obj.meta}
		if !w.protobuf || enveloped {
			return w.object("meta.k8s.io/v1", "PartialObjectMetadata", partial)
		}
		message, _ := partial.Marshal()
		return message
	}
	switch {
	case !w.protobuf:
		return obj.json
	case enveloped:
		return envelop(gv, kind, obj.protobuf)
	}
	return obj.protobuf
}

func (w *writer) list(meta metav1.ListMeta, objs []*stored) {
	w.Header().Set("Content-Type", w.contentType())
	kind := w.collection.kind
	if !w.protobuf {
		items := make([]json.RawMessage, 0, len(objs))
		for _, obj := range objs {
			items = append(items, w.bytes(obj, false))
		}
		// Custom resources are written in the order of their names: items come
		// before metadata.
		_ = json.NewEncoder(w).Encode(map[string]any{
			"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind + "List", "metadata": meta, "items": items,
		})
		return
	}
	encoded, err := meta.Marshal()
	if err != nil {
		panic(err)
	}
	message := appendBytes(nil, 1, encoded)
	for _, obj := range objs {
		message = appendBytes(message, 2, w.bytes(obj, false))
	}
	_, _ = w.Write(envelop(kind.GroupVersion().String(), kind.Kind+"List", message))
}

func appendBytes(b []byte, num protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), value)
}

// event writes an event of a watch: an object, an error, or else a bookmark.
func (w *writer) event(typ string, obj *stored, failure *apierrors.StatusError, revision int64) {
	w.report()
	var raw []byte
	switch {
	case obj != nil && typ == "DELETED":
		last := *obj
		last.meta.ResourceVersion = strconv.FormatInt(revision, 10)
		raw = w.bytes(&last, true)
	case obj != nil:
		raw = w.bytes(obj, true)
	case failure != nil:
		status := failure.Status()
		raw = w.object("v1", "Status", &status)
	default:
		raw = w.bookmark(revision)
	}
	if !w.protobuf {
		text, _ := json.Marshal(metav1.WatchEvent{Type: typ, Object: runtime.RawExtension{Raw: raw}})
		_, _ = w.Write(append(text, '\n'))
	} else {
		frame, _ := (&metav1.WatchEvent{Type: typ, Object: runtime.RawExtension{Raw: raw}}).Marshal()
		_, _ = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...))
	}
	w.ResponseWriter.(http.Flusher).Flush()
}

func (w *writer) bookmark(revision int64) []byte {
	mark := &metav1.PartialObjectMetadata{}
	mark.ResourceVersion = strconv.FormatInt(revision, 10)
	if !w.started {
		w.started = true
		mark.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	return w.object(w.collection.kind.GroupVersion().String(), w.collection.kind.Kind, mark)
}

// flush sends the header of a watch.
func (w *writer) report() {
	w.Header().Set("Content-Type", w.contentType()+";stream=watch")
	w.ResponseWriter.(http.Flusher).Flush()
}

func newUID(n int64) types.UID { return types.UID(fmt.Sprintf("6e3f0000-0000-4000-8000-%012x", n)) }
