// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skep-operator/skep/runtime/health"

	"github.com/skep-operator/skep/resources/leading"
)

// memory is an API server of ConfigMaps without a wire, for tests in a bubble.
type memory struct {
	revision int
	objects  map[string]map[string]any // by name
	writes   int
	changed  func(obj map[string]any) // a webhook, nil for none
	lose     bool                     // the responses of writes
}

func (m *memory) next() string { m.revision++; return fmt.Sprint(m.revision) }

// RoundTrip implements http.RoundTripper.
func (m *memory) RoundTrip(req *http.Request) (*http.Response, error) {
	name := path.Base(req.URL.Path)
	is := m.objects[name]
	switch req.Method {
	case http.MethodPost, http.MethodPut:
		m.writes++
		sent := map[string]any{}
		if err := json.NewDecoder(req.Body).Decode(&sent); err != nil {
			return nil, err
		}
		u := unstructured.Unstructured{Object: sent}
		switch {
		case req.Method == http.MethodPut && is == nil:
			return m.refuse(apierrors.NewNotFound(configMaps.GroupResource(), name))
		case req.Method == http.MethodPut && u.GetResourceVersion() != (&unstructured.Unstructured{Object: is}).GetResourceVersion():
			return m.refuse(apierrors.NewConflict(configMaps.GroupResource(), name, errors.New("changed")))
		}
		stored := m.put(&u)
		if m.lose {
			return nil, errors.New("connection reset")
		}
		return m.answer(200, stored)
	case http.MethodPatch:
		m.writes++
		before, err := json.Marshal(is)
		if err != nil {
			return nil, err
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		patch, err := jsonpatch.DecodePatch(body)
		if err != nil {
			return nil, err
		}
		after, err := patch.Apply(before)
		if err != nil {
			return nil, err
		}
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(after); err != nil {
			return nil, err
		}
		return m.answer(200, m.put(u))
	case http.MethodDelete:
		m.writes++
		uid := (&unstructured.Unstructured{Object: is}).GetUID()
		delete(m.objects, name)
		return m.answer(200, metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess,
			Details: &metav1.StatusDetails{Name: name, Kind: "configmaps", UID: uid},
		})
	}
	if is == nil {
		return m.refuse(apierrors.NewNotFound(configMaps.GroupResource(), name))
	}
	return m.answer(200, is)
}

func (m *memory) put(u *unstructured.Unstructured) map[string]any {
	u.SetKind("ConfigMap")
	u.SetAPIVersion("v1")
	u.SetResourceVersion(m.next())
	if u.GetUID() == "" {
		u.SetUID(types.UID("uid-" + m.next()))
	}
	if m.changed != nil {
		m.changed(u.Object)
	}
	m.objects[u.GetName()] = u.Object
	return u.Object
}

func (m *memory) refuse(err *apierrors.StatusError) (*http.Response, error) {
	return m.answer(int(err.ErrStatus.Code), asSent(err))
}

func (m *memory) answer(code int, obj any) (*http.Response, error) {
	body, err := json.Marshal(obj)
	return &http.Response{
		StatusCode: code, Status: fmt.Sprint(code), Header: http.Header{"Content-Type": {trueJSON}}, Body: io.NopCloser(bytes.NewReader(body)),
	}, err
}

// other changes an object as another writer.
func (m *memory) other(name string, change func(data map[string]any)) {
	u := &unstructured.Unstructured{Object: m.objects[name]}
	data, _, _ := unstructured.NestedMap(u.Object, "data")
	if data == nil {
		data = map[string]any{}
	}
	change(data)
	u.Object["data"] = data
	u.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "kubectl-edit", Operation: "Update", Time: &metav1.Time{Time: time.Now()}}})
	u.SetResourceVersion(m.next())
}

// contest is a client of a memory, and what is reported.
type contest struct {
	*client
	*memory
	tree *health.Tree
	log  *bytes.Buffer
}

func newContest(t *testing.T) *contest {
	t.Helper()
	c := &contest{memory: &memory{objects: map[string]map[string]any{}}, tree: health.NewTree(), log: &bytes.Buffer{}}
	d := openTransport(t, func(c *Config) { c.K8sAPIServer, c.QPS = "127.0.0.1:1", 1e6 })
	d.log = slog.New(slog.NewTextHandler(c.log, nil))
	d.reads.next = c.memory
	m := &moduleTransport{guardedTransport: d, module: "duty", writer: &writer{fence: leading.Unfenced(), next: c.memory}}
	report := newContentionReport(d.contention, c.tree.Reporter("duty"), d.log)
	t.Cleanup(report.stop)
	var err error
	if c.client, err = newClient(m, newPermissions(), report); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *contest) degraded() string {
	synctest.Wait()
	var texts []string
	for _, s := range c.tree.Degraded() {
		texts = append(texts, s.ID+": "+s.Message+": "+s.Error)
	}
	return strings.Join(texts, "\n")
}

// a is the object that most tests write.
var a = Ref{Resource: configMaps, Namespace: "n", Name: "a"}

func (c *contest) edit(t *testing.T, change func(*unstructured.Unstructured) error) error {
	_, _, err := c.Modify(why(t), a, change)
	return err
}

// set has a field be as the duty wants it.
func (c *contest) set(t *testing.T, name, field, value string) error {
	_, _, err := c.Modify(why(t), Ref{Resource: configMaps, Namespace: "n", Name: name}, func(u *unstructured.Unstructured) error {
		return unstructured.SetNestedField(u.Object, value, "data", field)
	})
	return err
}

func (c *contest) create(t *testing.T, name string) error {
	cm := newConfigMap("n", name, map[string]string{"a": "b"})
	cm.APIVersion, cm.Kind = "v1", "ConfigMap"
	_, err := c.Create(why(t), configMaps, cm)
	return err
}

// K8S-9: what another writer undoes again and again is written less and less often, names
// the object, the field and the writer, and recovers when it stops.
func TestAChangeThatIsUndoneIsWrittenLessAndLessOften(t *testing.T) {
	var whole *unstructured.Unstructured
	for name, test := range map[string]struct {
		undo  func(*contest)
		write func(*testing.T, *contest) error
		names []string
	}{
		"a field is removed": {
			func(c *contest) { c.other("a", func(data map[string]any) { delete(data, "error") }) },
			func(t *testing.T, c *contest) error { return c.set(t, "a", "error", "full") },
			[]string{"data.error", "configmaps n/a", "kubectl-edit"},
		},
		"a field is rewritten, each time otherwise": {
			func(c *contest) { c.other("a", func(data map[string]any) { data["error"] = time.Now().String() }) },
			func(t *testing.T, c *contest) error { return c.set(t, "a", "error", "full") },
			[]string{"data.error", "configmaps n/a", "kubectl-edit"},
		},
		"a mark with the time": {
			func(c *contest) { c.other("a", func(data map[string]any) { delete(data, "mark") }) },
			func(t *testing.T, c *contest) error { return c.set(t, "a", "mark", time.Now().String()) },
			[]string{"data.mark", "configmaps n/a", "kubectl-edit"},
		},
		"an object is deleted": {
			func(c *contest) { delete(c.objects, "new") },
			func(t *testing.T, c *contest) error {
				err := c.create(t, "new")
				if IsAlreadyExists(err, Ref{Resource: configMaps, Namespace: "n", Name: "new"}) {
					return nil
				}
				return err
			},
			[]string{"deletes configmaps n/new"},
		},
		"a patched value is removed": {
			func(c *contest) { c.other("a", func(data map[string]any) { delete(data, "patched") }) },
			func(t *testing.T, c *contest) error { return c.patch(t, "a", "patched", "yes") },
			[]string{"data.patched", "configmaps n/a"},
		},
		"the whole is replaced": {
			func(c *contest) { c.other("a", func(data map[string]any) { data["other"] = "x" }) },
			func(t *testing.T, c *contest) error {
				whole = (&unstructured.Unstructured{Object: c.objects["a"]}).DeepCopy()
				whole.Object["data"] = map[string]any{"mine": "1"}
				whole.SetManagedFields(nil)
				_, err := c.Update(why(t), configMaps, whole)
				return err
			},
			[]string{"its content", "configmaps n/a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newContest(t)
				if err := c.create(t, "a"); err != nil {
					t.Fatal(err)
				}
				c.writes = 0
				var last error
				refused := 0
				for range 60 * 60 { // an hour
					test.undo(c)
					if last = test.write(t, c); last != nil {
						refused++
						var contention *ContentionError
						if !errors.As(last, &contention) || !contention.Until.After(time.Now()) {
							t.Fatalf("%v", last)
						}
					}
					time.Sleep(time.Second)
				}
				if c.writes < 15 || c.writes > 30 {
					t.Errorf("%d writes in an hour", c.writes)
				}
				shown := c.degraded()
				for _, want := range append(test.names, "duty.contention") {
					if !strings.Contains(shown, want) {
						t.Errorf("health says %q, and not %q", shown, want)
					}
				}
				time.Sleep(time.Hour) // no other writer undoes it
				if err := test.write(t, c); err != nil {
					t.Errorf("after an hour: %v", err)
				}
				if shown := c.degraded(); shown != "" {
					t.Errorf("after an hour: %s", shown)
				}
				if n := strings.Count(c.log.String(), "level=WARN"); n != 1 {
					t.Errorf("%d warnings:\n%s", n, c.log)
				}
			})
		})
	}
}

// K8S-9: writes that are no repetition go at once, however many there are.
func TestWritesThatAreNoRepetitionGoAtOnce(t *testing.T) {
	for name, write := range map[string]func(*testing.T, *contest, int) error{
		"other content":    func(t *testing.T, c *contest, i int) error { return c.set(t, "a", "count", fmt.Sprint(i)) },
		"other patches":    func(t *testing.T, c *contest, i int) error { return c.patch(t, "a", "count", fmt.Sprint(i%2)) },
		"to and fro by us": func(t *testing.T, c *contest, i int) error { return c.set(t, "a", "count", fmt.Sprint(i%2)) },
		"the only field of a map, set and cleared by us": func(t *testing.T, c *contest, i int) error {
			return c.edit(t, func(u *unstructured.Unstructured) error {
				if i%2 == 0 {
					return unstructured.SetNestedField(u.Object, fmt.Sprint(i), "binaryData", "error")
				}
				unstructured.RemoveNestedField(u.Object, "binaryData", "error")
				return nil
			})
		},
		"not the same fields each time": func(t *testing.T, c *contest, i int) error {
			return c.edit(t, func(u *unstructured.Unstructured) error {
				data := map[string]any{"always": fmt.Sprint(i), "seldom": fmt.Sprint(i / 3)}
				return unstructured.SetNestedField(u.Object, data, "data")
			})
		},
		"fields that others change by agreement": func(t *testing.T, c *contest, i int) error {
			c.other("a", func(data map[string]any) { data["list"] = "shorter" })
			_, _, err := c.Modify(WithSharedFields(why(t)), a, func(u *unstructured.Unstructured) error {
				return unstructured.SetNestedField(u.Object, "longer", "data", "list")
			})
			return err
		},
		"of another owner": func(t *testing.T, c *contest, i int) error {
			delete(c.objects, "owned") // with its owner
			cm := newConfigMap("n", "owned", nil)
			cm.APIVersion, cm.Kind = "v1", "ConfigMap"
			cm.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: "web", UID: types.UID(fmt.Sprint("web-", i))}}
			_, err := c.Create(why(t), configMaps, cm)
			return err
		},
		"beside each other": func(t *testing.T, c *contest, i int) error {
			c.other("a", func(data map[string]any) { data["theirs"] = fmt.Sprint(i) })
			return c.set(t, "a", "ours", fmt.Sprint(i))
		},
		"another uid": func(t *testing.T, c *contest, i int) error {
			delete(c.objects, "a")
			c.memory.put(&unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"namespace": "n", "name": "a"}}})
			return c.set(t, "a", "field", "same")
		},
		"deleted by us, of many sources": func(t *testing.T, c *contest, i int) error {
			if err := c.create(t, "mine"); err != nil {
				return err
			}
			uid := (&unstructured.Unstructured{Object: c.objects["mine"]}).GetUID()
			return c.Delete(WithManySources(why(t)), Ref{Resource: configMaps, Namespace: "n", Name: "mine"}, Preconditions{UID: uid})
		},
		"the whole, to and fro by us": func(t *testing.T, c *contest, i int) error {
			u := (&unstructured.Unstructured{Object: c.objects["a"]}).DeepCopy()
			u.Object["data"] = map[string]any{"count": fmt.Sprint(i % 2)}
			_, err := c.Update(why(t), configMaps, u)
			return err
		},
		"responses get lost": func(t *testing.T, c *contest, i int) error {
			if c.lose = true; c.set(t, "a", "count", fmt.Sprint(i, " lost")) == nil {
				t.Error("no response, and no error")
			}
			c.lose = false
			return c.set(t, "a", "count", fmt.Sprint(i))
		},
		"responses to creations get lost": func(t *testing.T, c *contest, i int) error {
			c.lose = true
			_ = c.create(t, "lost")
			c.lose = false
			delete(c.objects, "lost")
			return nil
		},
		"another leader": func(t *testing.T, c *contest, i int) error {
			c.other("a", func(data map[string]any) { data["count"] = "theirs" })
			c.transport.contention.reset() // as the term that begins does
			return c.set(t, "a", "count", "ours")
		},
		"now and then": func(t *testing.T, c *contest, i int) error {
			time.Sleep(11 * time.Minute)
			c.other("a", func(data map[string]any) { delete(data, "error") })
			return c.set(t, "a", "error", "full")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newContest(t)
				if err := c.create(t, "a"); err != nil {
					t.Fatal(err)
				}
				for i := range 100 {
					if err := write(t, c, i); err != nil {
						t.Fatalf("write %d: %v", i, err)
					}
					time.Sleep(10 * time.Millisecond)
				}
				if shown := c.degraded(); shown != "" {
					t.Error(shown)
				}
			})
		})
	}
}

// K8S-9: a change that a webhook drops as it is written is written less and less often, too.
func TestAChangeThatIsDroppedIsWrittenLessAndLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newContest(t)
		if err := c.create(t, "a"); err != nil {
			t.Fatal(err)
		}
		c.changed = func(obj map[string]any) { unstructured.RemoveNestedField(obj, "data", "error") }
		c.writes = 0
		dropped := 0
		for range 60 * 60 {
			var notStored *NotStoredError
			var contention *ContentionError
			switch err := c.set(t, "a", "error", "full"); {
			case errors.As(err, &notStored):
				dropped++
				if notStored.Field != "data.error" {
					t.Errorf("%v", err)
				}
			case !errors.As(err, &contention):
				t.Fatalf("%v", err)
			}
			time.Sleep(time.Second)
		}
		if c.writes != dropped || dropped < 15 || dropped > 30 {
			t.Errorf("%d writes, %d dropped", c.writes, dropped)
		}
		if shown := c.degraded(); !strings.Contains(shown, "data.error") || !strings.Contains(shown, "webhook") {
			t.Error(shown)
		}
	})
}
