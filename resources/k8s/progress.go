// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"
	"mime"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/runtime/cell"
)

// object names the object for the record of writes.
func (r Ref) object() leading.Object {
	return leading.Object{Resource: r.Resource, Namespace: r.Namespace, Name: r.Name, Subresource: r.Subresource}
}

func resourceName(r schema.GroupVersionResource) string { return r.GroupResource().String() }

// refOf reads the path of a request for an object or a collection. An API server
// may have its API below a path of its own.
func refOf(path string) (Ref, bool) {
	for _, start := range []string{"/apis/", "/api/"} {
		if i := strings.Index(path, start); i >= 0 {
			path = path[i:]
			break
		}
	}
	parts := strings.Split(strings.Trim(path, "/"), "/")
	var ref Ref
	switch {
	case len(parts) > 2 && parts[0] == "api":
		ref.Resource.Version, parts = parts[1], parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		ref.Resource.Group, ref.Resource.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return Ref{}, false
	}
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
		ref.Namespace, parts = parts[1], parts[2:]
	}
	ref.Resource.Resource = parts[0]
	if len(parts) > 1 {
		ref.Name = parts[1]
	}
	if len(parts) > 2 {
		ref.Subresource = parts[2]
	}
	return ref, true
}

// writeResult is how a client takes over the verification of the response of a write from
// the transport, with what the transport has recorded of it.
type writeResult struct {
	ref     *Ref // nil for a write that is recorded already
	earlier time.Time
	write   *explain.Write // nil for one that is recorded already
}

type writeResultKey struct{}

func withWriteResult(ctx context.Context) (context.Context, *writeResult) {
	r := &writeResult{}
	return context.WithValue(ctx, writeResultKey{}, r), r
}

func writeResultOf(req *http.Request) *writeResult {
	r, _ := req.Context().Value(writeResultKey{}).(*writeResult)
	return r
}

// track records the progress of a write around its round trip.
func (d *guardedTransport) track(req *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
	ref, ok := refOf(req.URL.Path)
	if !ok || req.Method == http.MethodDelete {
		return send()
	}
	earlier := d.progress.Sent(ref.object())
	resp, err := send()
	r := writeResultOf(req)
	switch {
	case err != nil || resp.StatusCode >= http.StatusInternalServerError:
		d.progress.MarkUnanswered(ref.object())
	case r != nil:
		r.ref, r.earlier = &ref, earlier
	case resp.StatusCode < http.StatusMultipleChoices:
		d.progress.MarkUnknown(ref.object()) // as other clients write
	case resp.StatusCode >= http.StatusBadRequest && isJSON(resp.Header.Get("Content-Type")):
		d.progress.Refused(ref.object(), earlier)
	default:
		d.progress.MarkUnanswered(ref.object())
	}
	return resp, err
}

func isJSON(contentType string) bool {
	mediaType, _, _ := mime.ParseMediaType(contentType)
	return mediaType == runtime.ContentTypeJSON
}

// complete ends what the transport began, with the object that the client has read, nil
// for a deletion. After a response that is not believed the write may have been made.
func (r *writeResult) complete(d *guardedTransport, obj *unstructured.Unstructured, err error) {
	switch {
	case r.ref == nil:
	case err == nil:
		d.recordStored(*r.ref, obj)
	case Refused(err):
		d.progress.Refused(r.ref.object(), r.earlier)
	default:
		d.progress.MarkUnanswered(r.ref.object())
	}
	if r.write == nil {
		return
	}
	switch {
	case err != nil:
		r.write.Result = err.Error()
	case obj != nil:
		r.write.Name, r.write.Revision = obj.GetName(), obj.GetResourceVersion()
	}
	d.history.RecordWrite(*r.write)
}

// recordStored records an object as stored.
func (d *guardedTransport) recordStored(ref Ref, obj *unstructured.Unstructured) {
	revision, err := parseRevision(obj.GetResourceVersion())
	if err != nil {
		d.progress.MarkUnknown(ref.object())
		return
	}
	d.progress.Stored(ref.object(), revision)
}

func newHandover(_ cell.ModuleInfo, d *guardedTransport, c Client) leading.Handover {
	return leading.NewHandover(d.progress, revisionReader(c))
}

// revisionReader reads revisions through a client.
func revisionReader(c Client) leading.Reader {
	return func(ctx context.Context, o leading.Object) (uint64, bool, error) {
		ref := Ref{Resource: o.Resource, Namespace: o.Namespace, Name: o.Name}
		obj, err := c.Get(ctx, ref)
		if IsNotFound(err, ref) {
			return 0, false, nil
		}
		if err != nil {
			return 0, false, err
		}
		revision, err := parseRevision(obj.GetResourceVersion())
		return revision, true, err
	}
}
