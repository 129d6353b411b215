// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// A response is believed only if it shows what was meant. Between the operator and
// the API server are load balancers and proxies, and behind it webhooks: each of them
// can answer with anything.

// verified passes on a response, but for one that no API server gives to a request for
// a resource, whatever its body: a redirect, or a page.
func verified(req *http.Request, resp *http.Response, err error) (*http.Response, error) {
	if err != nil {
		return nil, err
	}
	if err := verifyHeader(req, resp); err != nil {
		_ = resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

func verifyHeader(req *http.Request, resp *http.Response) error {
	invalid := func(what string) error {
		return &InvalidResponseError{Method: req.Method, Path: req.URL.Path, Code: resp.StatusCode, What: what}
	}
	ref, isResource := refOf(req.URL.Path)
	switch {
	case !isResource || ref.Subresource != "" && ref.Subresource != "status":
		return nil // logs and proxies answer with anything
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		return invalid(fmt.Sprintf("a redirect to %q", resp.Header.Get("Location")))
	case resp.StatusCode == http.StatusNoContent:
		return invalid("an empty body")
	case resp.StatusCode >= 300:
		return nil // the reader of the body checks it
	}
	contentType := resp.Header.Get("Content-Type")
	switch mediaType, _, _ := mime.ParseMediaType(contentType); mediaType {
	case runtime.ContentTypeJSON, runtime.ContentTypeYAML, runtime.ContentTypeProtobuf, runtime.ContentTypeCBOR, runtime.ContentTypeCBORSequence:
		return nil
	}
	return invalid(fmt.Sprintf("content of type %q", contentType))
}

// expected is what a response has to be about.
type expected struct {
	method   string
	ref      Ref
	generate string    // prefix of a generated name
	kind     string    // "" if it is not known
	uid      types.UID // "" if it is not known
	least    uint64    // the least resourceVersion
}

func (e expected) invalid(code int, format string, args ...any) error {
	return &InvalidResponseError{Method: e.method, Path: "/" + strings.Join(pathOf(e.ref), "/"), Code: code, What: fmt.Sprintf(format, args...)}
}

// decode reads the content of a response.
func (e expected) decode(r response) (map[string]any, error) {
	if len(r.body) == 0 {
		return nil, e.invalid(r.code, "an empty body")
	}
	var content any
	if err := utiljson.Unmarshal(r.body, &content); err != nil {
		return nil, e.invalid(r.code, "no JSON, %v: %s", err, excerpt(r.body))
	}
	object, ok := content.(map[string]any)
	if !ok {
		return nil, e.invalid(r.code, "no object: %s", excerpt(r.body))
	}
	return object, nil
}

// excerpt is the beginning of a body, for an error text.
func excerpt(body []byte) string {
	const most = 60
	if len(body) > most {
		return strconv.Quote(string(body[:most])) + "…"
	}
	return strconv.Quote(string(body))
}

// object reads a response that has to be an object.
func (e expected) object(r response) (*unstructured.Unstructured, error) {
	content, err := e.decode(r)
	if err != nil {
		return nil, err
	}
	obj := &unstructured.Unstructured{Object: content}
	if what := e.differs(obj); what != "" {
		return nil, e.invalid(r.code, "%s", what)
	}
	return obj, nil
}

// differs says how an object is not the expected one, "" if it is.
func (e expected) differs(obj *unstructured.Unstructured) string {
	revision, err := parseRevision(obj.GetResourceVersion())
	switch {
	case obj.GetKind() == "" || !IsVersionOf(obj.GetAPIVersion(), e.ref.Resource) || e.kind != "" && obj.GetKind() != e.kind:
		return fmt.Sprintf("kind %q of %q", obj.GetKind(), obj.GetAPIVersion())
	case e.generate != "" && !strings.HasPrefix(obj.GetName(), e.generate), e.generate == "" && obj.GetName() != e.ref.Name, obj.GetNamespace() != e.ref.Namespace:
		return fmt.Sprintf("another object, %s %q", obj.GetKind(), joinName(obj.GetNamespace(), obj.GetName()))
	case e.uid != "" && obj.GetUID() != e.uid:
		return fmt.Sprintf("an object with uid %q, not %q", obj.GetUID(), e.uid)
	case err != nil:
		return err.Error()
	case revision < e.least:
		return fmt.Sprintf("resourceVersion %d, which is older than %d", revision, e.least)
	}
	return ""
}

func joinName(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// maxRevision is more than any API server reaches: a thousand million writes per
// second for a hundred years. Revisions of a plan are just above 1<<62.
const maxRevision = 1<<62 + 1<<32

// parseRevision reads the resourceVersion of an object.
func parseRevision(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n == 0 || n > maxRevision {
		return 0, fmt.Errorf("resourceVersion %q", text)
	}
	return n, nil
}

// list reads a response that has to be a list of the kind that ref is of.
func (e expected) list(r response) ([]unstructured.Unstructured, error) {
	content, err := e.decode(r)
	if err != nil {
		return nil, err
	}
	head := unstructured.Unstructured{Object: content}
	kind := strings.TrimSuffix(head.GetKind(), "List")
	list := unstructured.UnstructuredList{Object: content}
	if kind == "" || kind == "Status" || !IsVersionOf(head.GetAPIVersion(), e.ref.Resource) {
		return nil, e.invalid(r.code, "kind %q of %q", head.GetKind(), head.GetAPIVersion())
	}
	if _, err := parseRevision(list.GetResourceVersion()); err != nil {
		return nil, e.invalid(r.code, "a list with %v", err)
	}
	items, _ := content["items"].([]any)
	out := make([]unstructured.Unstructured, 0, len(items))
	for _, item := range items {
		object, ok := item.(map[string]any)
		if !ok {
			return nil, e.invalid(r.code, "a list with an item that is no object")
		}
		obj := unstructured.Unstructured{Object: object}
		if obj.GetKind() == "" { // as in lists of built-in kinds
			obj.SetAPIVersion(head.GetAPIVersion())
			obj.SetKind(kind)
		}
		out = append(out, obj)
	}
	return out, nil
}

// deletion reads the response to a deletion: a Status that names the object, or the
// object itself where finalizers hold it, and for some kinds.
func (e expected) deletion(r response) (*unstructured.Unstructured, error) {
	content, err := e.decode(r)
	if err != nil {
		return nil, err
	}
	if content["kind"] != "Status" {
		return e.object(r)
	}
	text := func(path ...string) string {
		s, _, _ := unstructured.NestedString(content, path...)
		return s
	}
	uid := types.UID(text("details", "uid"))
	switch {
	case text("status") != "Success":
		return nil, e.invalid(r.code, "a Status %q in a response of success", text("status"))
	case text("details", "name") != e.ref.Name, uid != "" && uid != e.uid:
		return nil, e.invalid(r.code, "a Status about %q with uid %q", text("details", "name"), uid)
	}
	return nil, nil
}
