// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package dryrun

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/resources/explain"
)

// api is a server with a few objects that fails a test if it is asked to change
// any.
type api struct {
	t         *testing.T
	objects   map[string]string // by path
	forbidden map[string]bool   // paths that may not be read
	asked     []string
}

func (a *api) RoundTrip(req *http.Request) (*http.Response, error) {
	a.asked = append(a.asked, req.URL.RequestURI())
	if req.Method != http.MethodGet {
		a.t.Errorf("%s %s has reached the server", req.Method, req.URL)
	}
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	text, there := a.objects[req.URL.Path]
	status := func(code int, reason metav1.StatusReason) {
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Code: int32(code), Reason: reason, Status: "Failure"})
	}
	switch {
	case a.forbidden[req.URL.Path]:
		status(http.StatusForbidden, metav1.StatusReasonForbidden)
	case !there:
		status(http.StatusNotFound, metav1.StatusReasonNotFound)
	default:
		_, _ = io.WriteString(w, text)
	}
	return w.Result(), nil
}

const (
	nodes = "/apis/cilium.io/v2/ciliumnodes"
	nodeA = `{"apiVersion":"cilium.io/v2","kind":"CiliumNode","metadata":{"name":"a","uid":"u-a","resourceVersion":"7","generation":1,"labels":{"zone":"x"}},"spec":{"n":1},"status":{"ok":true}}`
	// definition says that CiliumNodes have their status apart.
	definition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"ciliumnodes.cilium.io","uid":"u-d","resourceVersion":"2"},` +
		`"spec":{"versions":[{"name":"v2","served":true,"storage":true,"subresources":{"status":{}}}]}}`
	definitionPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ciliumnodes.cilium.io"
)

var ciliumNodes = schema.GroupVersionResource{Group: "cilium.io", Version: "v2", Resource: "ciliumnodes"}

type rig struct {
	t    *testing.T
	api  *api
	plan *Plan
}

func newRig(t *testing.T) *rig {
	return &rig{t, &api{t: t, objects: map[string]string{nodes + "/a": nodeA, definitionPath: definition}, forbidden: map[string]bool{}}, New(time.Minute)}
}

// send sends a request through the overlay and returns the answer's code and
// content.
func (r *rig) send(method, path, contentType, body string) (int, map[string]any) {
	r.t.Helper()
	u, err := url.Parse("https://server" + path)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx := explain.WithCause(r.t.Context(), &explain.Cause{Rule: "test rule"})
	req := httptest.NewRequestWithContext(ctx, method, u.String(), strings.NewReader(body))
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Accept", "application/json")
	target := targetOf(u.Path)
	var resp *http.Response
	if method == http.MethodGet {
		resp, err = r.plan.Objects().Read(req, target, r.api)
	} else {
		resp, err = r.plan.Objects().Write(req, target, "test", r.api)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	var content map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&content); err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, content
}

// targetOf reads the paths of these tests, none of which is namespaced.
func targetOf(path string) Target {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	t := Target{Resource: schema.GroupVersionResource{Version: parts[1]}}
	rest := parts[2:]
	if parts[0] == "apis" {
		t.Resource = schema.GroupVersionResource{Group: parts[1], Version: parts[2]}
		rest = parts[3:]
	}
	t.Resource.Resource = rest[0]
	if len(rest) > 1 {
		t.Name = rest[1]
	}
	if len(rest) > 2 {
		t.Subresource = rest[2]
	}
	return t
}

func (r *rig) writes() []ReportedWrite { return r.plan.report(Load{}, true).Writes }

func at(content map[string]any, path ...string) any {
	var value any = content
	for _, p := range path {
		m, _ := value.(map[string]any)
		value = m[p]
	}
	return value
}

const asJSON, asMerge, asPatch = "application/json", "application/merge-patch+json", "application/json-patch+json"

// The overlay answers writes as a server does, and reads what was written.
func TestWrites(t *testing.T) {
	for _, test := range []struct {
		name, method, path, contentType, body string
		code                                  int
		reason                                metav1.StatusReason
	}{
		{"create what is there", "POST", nodes, asJSON, nodeA, 409, metav1.StatusReasonAlreadyExists},
		{"create", "POST", nodes, asJSON, `{"metadata":{"name":"b"}}`, 201, ""},
		{"create without a name", "POST", nodes, asJSON, `{"metadata":{}}`, 400, metav1.StatusReasonBadRequest},
		{"update what is missing", "PUT", nodes + "/none", asJSON, `{"metadata":{"name":"none"}}`, 404, metav1.StatusReasonNotFound},
		{"update an old one", "PUT", nodes + "/a", asJSON, `{"metadata":{"name":"a","resourceVersion":"6"}}`, 409, metav1.StatusReasonConflict},
		{"update another one", "PUT", nodes + "/a", asJSON, `{"metadata":{"name":"a","uid":"other"}}`, 409, metav1.StatusReasonConflict},
		{"update", "PUT", nodes + "/a", asJSON, strings.Replace(nodeA, `"n":1`, `"n":2`, 1), 200, ""},
		{"merge", "PATCH", nodes + "/a", asMerge, `{"spec":{"n":2}}`, 200, ""},
		{"merge an old one", "PATCH", nodes + "/a", asMerge, `{"metadata":{"resourceVersion":"6"}}`, 409, metav1.StatusReasonConflict},
		{"patch", "PATCH", nodes + "/a", asPatch, `[{"op":"test","path":"/metadata/uid","value":"u-a"},{"op":"replace","path":"/spec/n","value":2}]`, 200, ""},
		{"patch whose test fails", "PATCH", nodes + "/a", asPatch, `[{"op":"test","path":"/metadata/uid","value":"other"}]`, 422, metav1.StatusReasonInvalid},
		{"apply", "PATCH", nodes + "/a", "application/apply-patch+yaml", `{}`, 415, metav1.StatusReasonUnsupportedMediaType},
		{"delete another one", "DELETE", nodes + "/a", asJSON, `{"preconditions":{"uid":"other"}}`, 409, metav1.StatusReasonConflict},
		{"delete an old one", "DELETE", nodes + "/a", asJSON, `{"preconditions":{"uid":"u-a","resourceVersion":"6"}}`, 409, metav1.StatusReasonConflict},
		{"delete", "DELETE", nodes + "/a", asJSON, `{"preconditions":{"uid":"u-a","resourceVersion":"7"}}`, 200, ""},
		{"delete what is missing", "DELETE", nodes + "/none", asJSON, "", 404, metav1.StatusReasonNotFound},
		{"delete all", "DELETE", nodes, asJSON, "", 405, metav1.StatusReasonMethodNotAllowed},
		{"delete some", "DELETE", nodes + "?fieldSelector=metadata.name%21%3Da", asJSON, "", 405, metav1.StatusReasonMethodNotAllowed},
		{"delete the labelled", "DELETE", nodes + "?fieldSelector=metadata.name%3Da&labelSelector=x", asJSON, "", 405, metav1.StatusReasonMethodNotAllowed},
		{"delete one of all", "DELETE", nodes + "?fieldSelector=metadata.name%3Da", asJSON, `{"preconditions":{"uid":"u-a"}}`, 200, ""},
		{"delete another one of all", "DELETE", nodes + "?fieldSelector=metadata.name%3Da", asJSON, `{"preconditions":{"uid":"other"}}`, 409, metav1.StatusReasonConflict},
		{"another subresource", "POST", nodes + "/a/eviction", asJSON, "{}", 501, metav1.StatusReasonUnknown},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t)
			code, content := r.send(test.method, test.path, test.contentType, test.body)
			if reason := at(content, "reason"); code != test.code || test.reason != "" && test.reason != metav1.StatusReasonUnknown && reason != string(test.reason) {
				t.Errorf("%d %v: %v", code, reason, content)
			}
			if planned := len(r.writes()); (code < 300) != (planned == 1) {
				t.Errorf("%d writes are planned", planned)
			}
		})
	}
}

// What was written is read, listed and written again, with versions of its own.
func TestChain(t *testing.T) {
	r := newRig(t)
	r.api.objects[nodes] = `{"kind":"CiliumNodeList","apiVersion":"cilium.io/v2","metadata":{"resourceVersion":"9"},"items":[` + nodeA + `]}`
	_, read := r.send("GET", nodes+"/a", "", "")
	if at(read, "metadata", "resourceVersion") != "7" {
		t.Fatalf("read %v", read)
	}
	asked := len(r.api.asked)
	if code, _ := r.send("PUT", nodes+"/a", asJSON, strings.Replace(nodeA, `"n":1`, `"n":2`, 1)); code != 200 {
		t.Fatal(code)
	}
	if more := r.api.asked[asked:]; slices.Contains(more, nodes+"/a") {
		t.Errorf("what had been read was read again: %v", more)
	}
	_, read = r.send("GET", nodes+"/a", "", "")
	version, _ := at(read, "metadata", "resourceVersion").(string)
	if at(read, "spec", "n") != 2.0 || !IsPlanned(version) || at(read, "metadata", "uid") != "u-a" || at(read, "metadata", "generation") != 2.0 {
		t.Errorf("read %v", read)
	}
	if code, _ := r.send("PUT", nodes+"/a", asJSON, nodeA); code != 409 {
		t.Errorf("an update of the server's state after a planned one: %d", code)
	}
	if code, created := r.send("POST", nodes, asJSON, `{"metadata":{"name":"b","labels":{"zone":"y"}},"status":{"is":"ignored"}}`); code != 201 || created["status"] != nil || at(created, "metadata", "uid") == nil {
		t.Errorf("created %v", created)
	}
	names := func(query string) (names []string) {
		_, list := r.send("GET", nodes+query, "", "")
		items, _ := list["items"].([]any)
		for _, item := range items {
			names = append(names, at(item.(map[string]any), "metadata", "name").(string))
		}
		return names
	}
	for query, want := range map[string][]string{
		"": {"a", "b"}, "?labelSelector=zone%3Dx": {"a"}, "?labelSelector=zone%3Dy": {"b"}, "?fieldSelector=metadata.name%3Db": {"b"},
	} {
		if got := names(query); !slices.Equal(got, want) {
			t.Errorf("%q: %v", query, got)
		}
	}
	if code, _ := r.send("DELETE", nodes+"/a", asJSON, ""); code != 200 {
		t.Errorf("delete: %d", code)
	}
	if code, _ := r.send("GET", nodes+"/a", "", ""); code != 404 {
		t.Errorf("a deleted object is read: %d", code)
	}
	if got := names(""); !slices.Equal(got, []string{"b"}) {
		t.Errorf("after the delete: %v", got)
	}
	if code, _ := r.send("POST", nodes, asJSON, `{"metadata":{"name":"a"}}`); code != 201 {
		t.Errorf("created again: %d", code)
	}
	var verbs []string
	for _, w := range r.writes() {
		verbs = append(verbs, w.Verb+" "+w.Name)
	}
	if !slices.Equal(verbs, []string{"create a", "delete a", "update a", "create b"}) {
		t.Errorf("planned %v", verbs)
	}
}

// A status is a subresource of its own where the definition says so.
func TestStatus(t *testing.T) {
	r := newRig(t)
	_, stored := r.send("PUT", nodes+"/a", asJSON, `{"apiVersion":"cilium.io/v2","kind":"CiliumNode","metadata":{"name":"a"},"spec":{"n":2},"status":{"ok":false}}`)
	if at(stored, "status", "ok") != true || at(stored, "spec", "n") != 2.0 {
		t.Errorf("an update changed the status: %v", stored)
	}
	_, stored = r.send("PATCH", nodes+"/a/status", asMerge, `{"spec":{"n":3},"status":{"ok":false}}`)
	if at(stored, "status", "ok") != false || at(stored, "spec", "n") != 2.0 {
		t.Errorf("an update of the status changed more, or nothing: %v", stored)
	}
	r.api.objects[definitionPath] = strings.Replace(definition, `"subresources":{"status":{}}`, `"x":{}`, 1)
	r = &rig{t, r.api, New(time.Minute)}
	_, stored = r.send("PUT", nodes+"/a", asJSON, `{"apiVersion":"cilium.io/v2","kind":"CiliumNode","metadata":{"name":"a"},"status":{"ok":false}}`)
	if at(stored, "status", "ok") != false {
		t.Errorf("the status is no subresource, and was not changed: %v", stored)
	}
}

// Finalizers hold an object until the last is gone.
func TestFinalizers(t *testing.T) {
	r := newRig(t)
	r.api.objects[nodes+"/a"] = strings.Replace(nodeA, `"uid"`, `"finalizers":["x"],"uid"`, 1)
	if code, marked := r.send("DELETE", nodes+"/a", asJSON, ""); code != 200 || at(marked, "metadata", "deletionTimestamp") == nil {
		t.Errorf("%d %v", code, marked)
	}
	r.send("PATCH", nodes+"/a", asMerge, `{"metadata":{"finalizers":null}}`)
	if code, _ := r.send("GET", nodes+"/a", "", ""); code != 404 {
		t.Errorf("it is still there: %d", code)
	}
}

// A definition serves at once: its resource is there, and empty.
func TestDefinitionServesAtOnce(t *testing.T) {
	r := newRig(t)
	r.api.objects = map[string]string{}
	if code, _ := r.send("GET", nodes, "", ""); code != 404 {
		t.Fatalf("a resource that is not defined: %d", code)
	}
	_, made := r.send("POST", strings.TrimSuffix(definitionPath, "/ciliumnodes.cilium.io"), asJSON, definition)
	conditions, _ := at(made, "status", "conditions").([]any)
	if len(conditions) != 2 || !r.plan.Objects().Defines("ciliumnodes.cilium.io") {
		t.Errorf("made %v", made)
	}
	if code, list := r.send("GET", nodes, "", ""); code != 200 || len(list["items"].([]any)) != 0 {
		t.Errorf("%d %v", code, list)
	}
	if code, _ := r.send("GET", nodes+"/a", "", ""); code != 404 {
		t.Errorf("an object of it: %d", code)
	}
	r.send("POST", nodes, asJSON, `{"metadata":{"name":"a"}}`)
	if _, list := r.send("GET", nodes, "", ""); len(list["items"].([]any)) != 1 {
		t.Errorf("after one was created: %v", list)
	}

	// A stream lists and watches it, and merges the rest itself.
	for _, query := range []string{"", "?watch=true&sendInitialEvents=true"} {
		ctx, cancel := context.WithCancel(t.Context())
		req := httptest.NewRequestWithContext(AsIs(ctx), "GET", "https://server"+nodes+query, nil)
		resp, err := r.plan.Objects().Read(req, Target{Resource: ciliumNodes}, r.api)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%q: %v, %v", query, resp, err)
		}
		if query != "" {
			var event struct{ Type string }
			if err := json.NewDecoder(resp.Body).Decode(&event); err != nil || event.Type != "BOOKMARK" {
				t.Errorf("%v, %v", event, err)
			}
			cancel()
		}
		if rest, _ := io.ReadAll(resp.Body); query == "" && !bytes.Contains(rest, []byte(`"items":[]`)) {
			t.Errorf("%s", rest)
		}
		cancel()
	}
}

// The change of another writer is kept, and the planned changes are applied to
// it.
func TestOthersWrite(t *testing.T) {
	r := newRig(t)
	o := r.plan.Objects()
	told := make(chan Key, 10)
	defer o.Follow(ciliumNodes, func(k Key) { told <- k })()
	r.send("PATCH", nodes+"/a", asMerge, `{"spec":{"n":2}}`)
	<-told
	if !o.Newer(ciliumNodes, Key{Name: "a"}, 7) {
		t.Error("the state that the plan began with is not hidden")
	}
	r.api.objects[nodes+"/a"] = strings.Replace(strings.Replace(nodeA, `"ok":true`, `"ok":"others"`, 1), `"7"`, `"8"`, 1)
	o.Newer(ciliumNodes, Key{Name: "a"}, 8)
	<-told
	state, base, held := o.Planned(ciliumNodes, Key{Name: "a"})
	if !held || base != 8 || at(state.Object, "spec", "n") != int64(2) || at(state.Object, "status", "ok") != "others" {
		t.Errorf("%v at %d", state, base)
	}
	r.api.objects[nodes+"/a"] = strings.Replace(strings.Replace(nodeA, `u-a`, `u-new`, 1), `"7"`, `"9"`, 1)
	o.Newer(ciliumNodes, Key{Name: "a"}, 9)
	<-told
	if _, _, held := o.Planned(ciliumNodes, Key{Name: "a"}); held {
		t.Error("another object of the name is hidden")
	}
	r.send("DELETE", nodes+"/a", asJSON, "")
	if !o.Gone(ciliumNodes, Key{Name: "a"}) {
		t.Error("the server's delete is no news")
	}
	r.send("POST", nodes, asJSON, `{"metadata":{"name":"b"}}`)
	if o.Gone(ciliumNodes, Key{Name: "b"}) {
		t.Error("an object that only the plan has is gone from the server")
	}
}

// Where GET is forbidden, objects are listed by name.
func TestForbiddenGet(t *testing.T) {
	r := newRig(t)
	r.api.forbidden[nodes+"/a"] = true
	r.api.objects[nodes] = `{"items":[` + nodeA + `]}`
	if code, _ := r.send("DELETE", nodes+"/a", asJSON, `{"preconditions":{"uid":"u-a"}}`); code != 200 {
		t.Errorf("code %d", code)
	}
	r = newRig(t)
	r.api.forbidden[nodes+"/a"], r.api.forbidden[nodes] = true, true
	if code, content := r.send("DELETE", nodes+"/a", asJSON, ""); code != 403 {
		t.Errorf("%d %v", code, content)
	}
}

// Values of Secrets are never told.
func TestSecretsAreHidden(t *testing.T) {
	r := newRig(t)
	r.api.objects["/api/v1/secrets/s"] = `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","uid":"u","resourceVersion":"1"},"data":{"key":"b2xkLXZhbHVl"}}`
	r.send("PUT", "/api/v1/secrets/s", asJSON, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"data":{"key":"bmV3LXZhbHVl"},"stringData":{"k":"new-value"}}`)
	r.send("PATCH", "/api/v1/secrets/s", asMerge, `{"data":{"key":"cGF0Y2hlZA=="}}`)
	r.send("POST", "/api/v1/secrets", asJSON, `{"apiVersion":"v1","kind":"Secret","metadata":{"generateName":"t-"},"data":{"key":"bmV3LXZhbHVl"}}`)
	report := r.plan.report(Load{}, true)
	var text bytes.Buffer
	if err := report.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if err := report.WriteJSON(&text); err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"b2xkLXZhbHVl", "bmV3LXZhbHVl", "new-value", "cGF0Y2hlZA"} {
		if strings.Contains(text.String(), secret) {
			t.Errorf("%s is told:\n%s", secret, &text)
		}
	}
	if len(report.Writes) != 3 || !strings.Contains(text.String(), hidden) || !strings.Contains(text.String(), "t-00001") {
		t.Errorf("%s", &text)
	}
}
