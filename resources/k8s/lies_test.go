// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/leading"
)

const trueJSON = "application/json"

// lie is an answer that is not that of the API server.
type lie struct {
	code        int
	contentType string
	body        string
	header      map[string]string
	truncated   bool
}

func (l lie) answer(w http.ResponseWriter) {
	if l.contentType != "" {
		w.Header().Set("Content-Type", l.contentType)
	}
	for name, value := range l.header {
		w.Header().Set(name, value)
	}
	if l.truncated {
		w.Header().Set("Content-Length", fmt.Sprint(2*len(l.body)))
	}
	w.WriteHeader(l.code)
	_, _ = w.Write([]byte(l.body))
}

// stored is the object of these tests as the server has it.
func storedMap(change func(*corev1.ConfigMap)) string {
	cm := newConfigMap("n", "a", map[string]string{"old": "1", "changed": "yes"})
	cm.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
	cm.UID, cm.ResourceVersion = "uid-a", "8"
	if change != nil {
		change(cm)
	}
	body, _ := json.Marshal(cm)
	return string(body)
}

func statusBody(s metav1.Status) string {
	s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	body, _ := json.Marshal(s)
	return string(body)
}

// lies are answers to requests for the object. Each has to be an error that says so.
var lies = map[string]lie{
	"HTML":                      {200, "text/html", "<html><body>Welcome to nginx!</body></html>", nil, false},
	"HTML as JSON":              {200, trueJSON, "<html><body>Welcome to nginx!</body></html>", nil, false},
	"text":                      {200, "text/plain", "ok", nil, false},
	"empty":                     {200, trueJSON, "", nil, false},
	"no content":                {204, "", "", nil, false},
	"null":                      {200, trueJSON, "null", nil, false},
	"a string":                  {200, trueJSON, `"ok"`, nil, false},
	"an empty object":           {200, trueJSON, "{}", nil, false},
	"an array":                  {200, trueJSON, "[]", nil, false},
	"a list":                    {200, trueJSON, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[]}`, nil, false},
	"a list of no kind":         {200, trueJSON, `{"kind":"List","apiVersion":"v1","metadata":{},"items":[]}`, nil, false},
	"another name":              {200, trueJSON, storedMap(func(c *corev1.ConfigMap) { c.Name = "b" }), nil, false},
	"another namespace":         {200, trueJSON, storedMap(func(c *corev1.ConfigMap) { c.Namespace = "m" }), nil, false},
	"another kind":              {200, trueJSON, storedMap(func(c *corev1.ConfigMap) { c.Kind, c.APIVersion = "Deployment", "apps/v1" }), nil, false},
	"no kind":                   {200, trueJSON, storedMap(func(c *corev1.ConfigMap) { c.Kind = "" }), nil, false},
	"no revision":               {200, trueJSON, storedMap(func(c *corev1.ConfigMap) { c.ResourceVersion = "" }), nil, false},
	"revision 0":                {200, trueJSON, storedMap(func(c *corev1.ConfigMap) { c.ResourceVersion = "0" }), nil, false},
	"revision abc":              {200, trueJSON, storedMap(func(c *corev1.ConfigMap) { c.ResourceVersion = "abc" }), nil, false},
	"revision -1":               {200, trueJSON, storedMap(func(c *corev1.ConfigMap) { c.ResourceVersion = "-1" }), nil, false},
	"revision 2^64":             {200, trueJSON, storedMap(func(c *corev1.ConfigMap) { c.ResourceVersion = "18446744073709551616" }), nil, false},
	"revision 2^64-1":           {200, trueJSON, storedMap(func(c *corev1.ConfigMap) { c.ResourceVersion = "18446744073709551615" }), nil, false},
	"truncated":                 {200, trueJSON, storedMap(nil)[:60], nil, false},
	"cut off":                   {200, trueJSON, storedMap(nil), nil, true},
	"two objects":               {200, trueJSON, storedMap(nil) + storedMap(nil), nil, false},
	"as text":                   {200, "text/plain", storedMap(nil), nil, false},
	"as protobuf":               {200, "application/vnd.kubernetes.protobuf", storedMap(nil), nil, false},
	"Status success":            {200, trueJSON, statusBody(metav1.Status{Status: metav1.StatusSuccess}), nil, false},
	"Status failure":            {200, trueJSON, statusBody(metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: 404}), nil, false},
	"302":                       {302, "text/html", "", map[string]string{"Location": "/login"}, false},
	"307 loop":                  {307, "", "", map[string]string{"Location": "/api/v1/namespaces/n/configmaps/a"}, false},
	"304":                       {304, "", "", nil, false},
	"401 text":                  {401, "text/plain", "Unauthorized", nil, false},
	"403 text":                  {403, "text/plain", "Forbidden", nil, false},
	"404 text":                  {404, "text/plain", "404 page not found", nil, false},
	"404 HTML":                  {404, "text/html", "<html>nothing here</html>", nil, false},
	"404 without details":       {404, trueJSON, statusBody(*notFoundStatus("", "")), nil, false},
	"404 of the namespace":      {404, trueJSON, statusBody(*notFoundStatus("namespaces", "n")), nil, false},
	"404 of another object":     {404, trueJSON, statusBody(*notFoundStatus("configmaps", "b")), nil, false},
	"404 Status called success": {404, trueJSON, statusBody(metav1.Status{Status: metav1.StatusSuccess}), nil, false},
	"409 text":                  {409, "text/plain", "conflict", nil, false},
	"409 without details":       {409, trueJSON, statusBody(metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonConflict, Code: 409}), nil, false},
	"409 of another object":     {409, trueJSON, statusBody(apierrors.NewConflict(configMaps.GroupResource(), "b", fmt.Errorf("changed")).ErrStatus), nil, false},
	"410 text":                  {410, "text/plain", "gone", nil, false},
	"410":                       {410, trueJSON, statusBody(apierrors.NewResourceExpired("too old").ErrStatus), nil, false},
	"429":                       {429, "text/plain", "slow down", map[string]string{"Retry-After": "3600"}, false},
	"500 HTML":                  {500, "text/html", "<html>oops</html>", nil, false},
	"503 with Retry-After":      {503, "text/plain", "away", map[string]string{"Retry-After": "3600"}, false},
	"504":                       {504, trueJSON, statusBody(apierrors.NewTimeoutError("Too large resource version: 9, current: 8", 1).ErrStatus), nil, false},
	"a field was dropped":       {200, trueJSON, storedMap(func(c *corev1.ConfigMap) { delete(c.Data, "changed") }), nil, false},
	"a field was changed":       {200, trueJSON, storedMap(func(c *corev1.ConfigMap) { c.Data["changed"] = "no" }), nil, false},
	"all fields were dropped":   {200, trueJSON, storedMap(func(c *corev1.ConfigMap) { c.Data = nil }), nil, false},
	"another uid":               {200, trueJSON, storedMap(func(c *corev1.ConfigMap) { c.UID = "uid-b" }), nil, false},
	"an older revision":         {200, trueJSON, storedMap(func(c *corev1.ConfigMap) { c.ResourceVersion = "6" }), nil, false},
}

func notFoundStatus(resource, name string) *metav1.Status {
	s := apierrors.NewNotFound(configMaps.GroupResource(), name).ErrStatus
	s.Details.Kind = resource
	if resource == "" {
		s.Details = nil
	}
	return &s
}

// notToAll are lies that are none as an answer to some requests.
var notToAll = map[string]string{
	"a field was dropped": "update modify", "a field was changed": "create update modify", "all fields were dropped": "create update modify",
	"another uid": "update modify", "an older revision": "update modify",
}

// liar answers requests with a lie; those for the object before, to GET, truly.
func liar(t *testing.T, about string, tell lie) (d *guardedTransport, requests *atomic.Int64) {
	requests = &atomic.Int64{}
	d = openTransport(t, func(c *Config) {
		c.K8sAPIServer = serve(t, func(w http.ResponseWriter, r *http.Request) {
			requests.Add(1)
			if about != "get" && r.Method == http.MethodGet {
				w.Header().Set("Content-Type", trueJSON)
				_, _ = w.Write([]byte(storedMap(func(c *corev1.ConfigMap) { c.ResourceVersion = "7"; delete(c.Data, "changed") })))
				return
			}
			tell.answer(w)
		})
	})
	d.lead(t)
	d.history = explain.NewHistory()
	d.progress.Begin(&leading.WriteProgress{Complete: true})
	return d, requests
}

// K8S-8: an answer that lies is never believed, whatever the request.
func TestAnAnswerThatLiesIsNotBelieved(t *testing.T) {
	ref := Ref{Resource: configMaps, Namespace: "n", Name: "a"}
	requests := map[string]func(*testing.T, *client) error{
		"get": func(t *testing.T, c *client) error { _, err := c.Get(t.Context(), ref); return err },
		"create": func(t *testing.T, c *client) error {
			_, err := c.Create(why(t), configMaps, newConfigMap("n", "a", map[string]string{"changed": "yes"}))
			return err
		},
		"update": func(t *testing.T, c *client) error {
			cm := newConfigMap("n", "a", map[string]string{"changed": "yes"})
			cm.UID, cm.ResourceVersion = "uid-a", "7"
			_, err := c.Update(why(t), configMaps, cm)
			return err
		},
		"modify": func(t *testing.T, c *client) error {
			_, written, err := c.Modify(why(t), ref, func(u *unstructured.Unstructured) error {
				return unstructured.SetNestedField(u.Object, "yes", "data", "changed")
			})
			if written {
				t.Error("it is said to be written")
			}
			return err
		},
		"patch": func(t *testing.T, c *client) error {
			_, err := c.Patch(why(t), ref, []byte(`[{"op":"add","path":"/data/changed","value":"yes"}]`), dataValue("changed", nil, "yes"))
			return err
		},
		"delete": func(t *testing.T, c *client) error {
			return c.Delete(why(t), ref, Preconditions{UID: types.UID("uid-a")})
		},
	}
	for what, tell := range lies {
		for verb, send := range requests {
			if only, limited := notToAll[what]; limited && !strings.Contains(only, verb) {
				continue
			}
			t.Run(what+"/"+verb, func(t *testing.T) {
				t.Parallel()
				d, requests := liar(t, verb, tell)
				err := send(t, d.client(t, "duty"))
				if err == nil {
					t.Fatal("believed")
				}
				if IsNotFound(err, ref) || IsConflict(err, ref) || IsAlreadyExists(err, ref) {
					t.Errorf("taken for an answer of the API server: %v", err)
				}
				if n := requests.Load(); n > 3 {
					t.Errorf("%d requests: the client retries by itself", n)
				}
				for _, w := range d.history.Writes(0) {
					if w.Result == "ok" {
						t.Errorf("the history of writes calls it a success: %+v", w)
					}
				}
				if told := d.progress.WriteProgress(); verb != "get" && verb != "delete" && tell.code < 400 && told.Complete {
					t.Errorf("the next leader is told that all writes are known: %v", told)
				}
			})
		}
	}
}
