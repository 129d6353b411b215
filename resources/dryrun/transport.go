// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package dryrun

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

type asIsKey struct{}

// AsIs marks requests that read what the server has: streams merge the overlay
// themselves. A resource whose definition is planned is there, and empty.
func AsIs(ctx context.Context) context.Context { return context.WithValue(ctx, asIsKey{}, true) }

// Read answers a request that changes nothing, from the overlay and the server.
func (o *Objects) Read(req *http.Request, t Target, server http.RoundTripper) (*http.Response, error) {
	if req.Method != http.MethodGet || t.Resource.Resource == "" || t.Subresource != "" {
		return server.RoundTrip(req)
	}
	query := req.URL.Query()
	watches := query.Get("watch") == "true" || query.Get("watch") == "1"
	if !watches {
		o.plan.Moved()
		o.reads.Add(1)
		defer o.reads.Add(-1)
	}
	switch asIs := req.Context().Value(asIsKey{}) != nil; {
	case watches, asIs && t.Name == "":
		resp, err := server.RoundTrip(req)
		if err != nil || resp.StatusCode != http.StatusNotFound || !o.serves(t.Resource) {
			return resp, err
		}
		resp.Body.Close()
		return emptyCollection(req, t, watches), nil
	case t.Name != "":
		return o.get(req, t, server)
	}
	return o.list(req, t, server)
}

func (o *Objects) get(req *http.Request, t Target, server http.RoundTripper) (*http.Response, error) {
	if state, _, held := o.Planned(t.Resource, t.place().key); held {
		if state == nil {
			return refusal(req, apierrors.NewNotFound(t.Resource.GroupResource(), t.Name)), nil
		}
		return answer(req, http.StatusOK, shaped(req, state.Object)), nil
	}
	resp, err := server.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	switch {
	case resp.StatusCode == http.StatusNotFound && o.serves(t.Resource):
		resp.Body.Close()
		return refusal(req, apierrors.NewNotFound(t.Resource.GroupResource(), t.Name)), nil
	case resp.StatusCode != http.StatusOK || metadataOnly(req) || !strings.HasPrefix(resp.Header.Get("Content-Type"), runtime.ContentTypeJSON):
		return resp, nil
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{}
	if u.UnmarshalJSON(text) == nil {
		o.recordRead(t.place(), u)
	}
	resp.Body = io.NopCloser(bytes.NewReader(text))
	return resp, nil
}

// recordRead remembers an object as a module read it: its write is based on that.
func (o *Objects) recordRead(at place, u *unstructured.Unstructured) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen[at] = u
}

// list merges the overlay into a list. What the plan created is on the last
// page.
func (o *Objects) list(req *http.Request, t Target, server http.RoundTripper) (*http.Response, error) {
	if len(o.Keys(t.Resource)) == 0 && !o.serves(t.Resource) {
		return server.RoundTrip(req)
	}
	asked := req
	req = req.Clone(req.Context())
	req.Header.Set("Accept", onlyJSON(req.Header.Get("Accept")))
	resp, err := server.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusNotFound && o.serves(t.Resource) {
		resp.Body.Close()
		resp = emptyCollection(req, t, false)
	}
	if resp.StatusCode != http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	list := map[string]any{}
	if err := utiljson.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("reading a list of %s for the plan: %w", t.Resource.GroupResource(), err)
	}
	merged, err := o.merge(asked, t, list)
	if err != nil {
		return refusal(asked, apierrors.NewBadRequest(err.Error())), nil
	}
	return answer(asked, http.StatusOK, merged), nil
}

func (o *Objects) merge(req *http.Request, t Target, list map[string]any) (map[string]any, error) {
	selected, err := SelectorOf(t.Namespace, req.URL.Query().Get("labelSelector"), req.URL.Query().Get("fieldSelector"))
	if err != nil {
		return nil, err
	}
	var items []any
	there := map[Key]bool{}
	old, _ := list["items"].([]any)
	for _, item := range old {
		content, _ := item.(map[string]any)
		key := keyOf(&unstructured.Unstructured{Object: content})
		there[key] = true
		state, _, held := o.Planned(t.Resource, key)
		switch {
		case !held:
			items = append(items, item)
		case state != nil && selected(state):
			items = append(items, shaped(req, state.Object))
		}
	}
	meta, _ := list["metadata"].(map[string]any)
	if next, _ := meta["continue"].(string); next == "" {
		for _, key := range o.Keys(t.Resource) {
			state, base, held := o.Planned(t.Resource, key)
			if held && state != nil && !there[key] && (base == 0 || !paged(req)) && selected(state) {
				items = append(items, shaped(req, state.Object))
			}
		}
	}
	list["items"] = items
	if items == nil {
		list["items"] = []any{}
	}
	return list, nil
}

// paged reports whether a list is a page behind others: what is not on it may be
// on them.
func paged(req *http.Request) bool { return req.URL.Query().Get("continue") != "" }

// SelectorOf returns whether the objects of a collection are in a list with these
// selectors.
func SelectorOf(namespace, labelSelector, fieldSelector string) (func(*unstructured.Unstructured) bool, error) {
	byLabels, err := labels.Parse(labelSelector)
	if err != nil {
		return nil, err
	}
	byFields, err := fields.ParseSelector(fieldSelector)
	if err != nil {
		return nil, err
	}
	return func(u *unstructured.Unstructured) bool {
		return (namespace == "" || u.GetNamespace() == namespace) && byLabels.Matches(labels.Set(u.GetLabels())) && byFields.Matches(fieldsOf{u})
	}, nil
}

// fieldsOf are the fields of an object by their path.
type fieldsOf struct{ *unstructured.Unstructured }

func (f fieldsOf) Has(path string) bool {
	_, there, _ := unstructured.NestedFieldNoCopy(f.Object, strings.Split(path, ".")...)
	return there
}

func (f fieldsOf) Get(path string) string {
	value, there, _ := unstructured.NestedFieldNoCopy(f.Object, strings.Split(path, ".")...)
	if !there || value == nil {
		return ""
	}
	return fmt.Sprint(value)
}

// Write answers a mutating request from the overlay. server is for what it has
// to read. module is who writes.
func (o *Objects) Write(req *http.Request, t Target, module string, server http.RoundTripper) (*http.Response, error) {
	o.plan.Moved()
	o.reads.Add(1)
	defer o.reads.Add(-1)
	var body []byte
	if req.Body != nil {
		defer req.Body.Close()
		var err error
		if body, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
	}
	mediaType, _, _ := strings.Cut(req.Header.Get("Content-Type"), ";")
	r := request{Target: t, method: req.Method, contentType: mediaType, body: body}
	code, content, err := o.write(req, r, module, server)
	status := apierrors.APIStatus(nil)
	switch {
	case errors.As(err, &status):
		return refusal(req, err), nil
	case err != nil:
		return nil, err
	}
	return answer(req, code, content), nil
}

func (o *Objects) write(req *http.Request, r request, module string, server http.RoundTripper) (code int, content map[string]any, err error) {
	asCollection := r.Name == "" && r.method == http.MethodDelete
	if asCollection {
		r.Name = theOne(req.URL.Query())
	}
	if r.Name == "" && r.method != http.MethodPost {
		return 0, nil, apierrors.NewMethodNotSupported(r.Resource.GroupResource(), "deletecollection")
	}
	at := objectURL(*req.URL, r.Target)
	if r.method == http.MethodPost && r.Name == "" {
		if r.Name, err = o.nameOf(r); err != nil {
			return 0, nil, err
		}
		at.Path += "/" + r.Name
	}
	if asCollection {
		at.Path += "/" + r.Name
	}
	from := origin{server, at, http.Header{"User-Agent": req.Header["User-Agent"]}}
	is, base, err := o.current(req.Context(), r.place(), from)
	if err != nil {
		return 0, nil, err
	}
	hasStatus := o.hasStatus(req.Context(), r.Target, from)

	o.mu.Lock()
	if obj := o.planned[r.Resource][r.place().key]; obj != nil { // written meanwhile
		is, base = obj.state, obj.base
	}
	out, err := r.apply(is, hasStatus, o.plan.Now())
	if err != nil {
		o.mu.Unlock()
		return 0, nil, err
	}
	if out.state != nil {
		if is == nil {
			o.created++
			out.state.SetUID(types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", o.created)))
			out.state.SetName(r.Name)
			unstructured.RemoveNestedField(out.state.Object, "metadata", "generateName")
		}
		out.state.SetResourceVersion(o.nextVersion())
	}
	if o.planned[r.Resource] == nil {
		o.planned[r.Resource] = map[Key]*object{}
	}
	o.planned[r.Resource][r.place().key] = &object{origin: from, base: base, state: out.state}
	delete(o.seen, r.place())
	o.mu.Unlock()

	o.plan.Record(req.Context(), o.reportedWrite(r, out, is, module))
	o.notify(r.place())
	if asCollection {
		return out.code, map[string]any{
			"kind": is.GetKind() + "List", "apiVersion": is.GetAPIVersion(),
			"metadata": map[string]any{"resourceVersion": is.GetResourceVersion()}, "items": []any{is.Object},
		}, nil
	}
	if out.state == nil {
		return out.code, map[string]any{
			"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{}, "status": metav1.StatusSuccess,
			"details": map[string]any{"name": r.Name, "group": r.Resource.Group, "kind": r.Resource.Resource, "uid": string(is.GetUID())},
		}, nil
	}
	return out.code, shaped(req, out.state.Object), nil
}

// theOne is the name of the one object that the selectors of a collection select, "" if they are others.
func theOne(query url.Values) string {
	selector, err := fields.ParseSelector(query.Get("fieldSelector"))
	if err != nil || query.Get("labelSelector") != "" || len(selector.Requirements()) != 1 {
		return ""
	}
	name, _ := selector.RequiresExactMatch("metadata.name")
	return name
}

// nameOf is the name of an object to be created. A generated one is numbered.
func (o *Objects) nameOf(r request) (string, error) {
	u, err := r.decode()
	switch {
	case err != nil:
		return "", err
	case u.GetName() != "":
		return u.GetName(), nil
	case u.GetGenerateName() == "":
		return "", apierrors.NewBadRequest("name or generateName is required")
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.created++
	return fmt.Sprintf("%s%05d", u.GetGenerateName(), o.created), nil
}

// reportedWrite is a write for the report.
func (o *Objects) reportedWrite(r request, out outcome, is *unstructured.Unstructured, module string) Write {
	w := Write{
		Module: module, Verb: out.verb, Resource: r.Resource.GroupResource().String(),
		Namespace: r.Namespace, Name: r.Name, Subresource: r.Subresource, Request: r.body,
	}
	if is != nil && out.verb != "delete" && out.state != nil {
		w.Changes = changes(is.Object, out.state.Object)
	}
	if r.Resource.Group == "" && r.Resource.Resource == "secrets" {
		w.Changes, w.Request = nil, hiddenRequest(r)
	}
	return w
}

// hiddenRequest is the body of a request for a Secret without its values.
func hiddenRequest(r request) json.RawMessage {
	var content map[string]any
	if r.method == http.MethodPatch || json.Unmarshal(r.body, &content) != nil {
		return json.RawMessage(`"` + hidden + `"`)
	}
	text, err := encode(hideSecrets(content))
	if err != nil {
		return nil
	}
	return text
}
