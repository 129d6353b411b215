// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/domain/labels"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/metrics"
)

// story is a table, and identity 300 in it.
type story struct {
	*table
	carry    map[string]identity.Number // by pod
	revision slim.Revision
}

func newStory(t *testing.T, pods pairs) *story {
	tb, _ := plan(t, "n")
	s := &story{table: tb, carry: map[string]identity.Number{}}
	tb.inUseByEndpoint = func(n identity.Number) bool {
		for range tb.endpointsWith(n) {
			return true
		}
		return false
	}
	tb.endpointsWith = func(n identity.Number) iter.Seq[slim.Key] {
		return func(yield func(slim.Key) bool) {
			for pod, has := range s.carry {
				if has == n && !yield(slim.Key{Namespace: "n", Name: pod}) {
					return
				}
			}
		}
	}
	for name, app := range pods {
		tb.upsertPod(podOf("n", name, pairs{"app": app}))
	}
	return s
}

// of are the labels of pods of an app.
func of(app string) slim.Labels {
	return slim.MakeLabels(pairs{"k8s:app": app, "k8s:io.cilium.k8s.policy.cluster": "c", "k8s:io.kubernetes.pod.namespace": "n"})
}

// shows has identity 300 seen with these labels.
func (s *story) shows(uid string, has slim.Labels) {
	s.revision++
	i := identityOf(300, has, s.revision)
	i.UID = slim.ParseUID(uid)
	s.upsertObject(i)
}

// todo is what is to be done for the labels of an app: "make 300", "restore 300",
// or why nothing.
func (s *story) todo(app string) string {
	todo := s.nextAction(of(app))
	if set := s.sets[of(app)]; set != nil {
		set.inFlight = false
	}
	switch {
	case todo.number == 0:
		return todo.reason
	case todo.edited != nil:
		return fmt.Sprint("restore ", todo.number)
	}
	return fmt.Sprint("make ", todo.number)
}

// ID-37: what an identity was given, and what is done about one that shows other
// labels.
func TestGivenLabels(t *testing.T) {
	web, evil := of("web"), of("evil")
	const exists300 = "identity 300 exists"
	for _, test := range []struct {
		name  string
		pods  pairs
		carry []string
		do    func(*story)
		want  map[string]string // by app
	}{
		{"edited while it is looked at", pairs{"a": "web"}, nil, func(s *story) {
			s.shows("U", web)
			s.shows("U", evil)
		}, map[string]string{"web": "restore 300"}},
		{"and put right by hand", pairs{"a": "web"}, nil, func(s *story) {
			s.shows("U", web)
			s.shows("U", evil)
			s.shows("U", web)
		}, map[string]string{"web": exists300}},
		{"edited, and endpoints have it", pairs{"a": "web"}, []string{"a"}, func(s *story) {
			s.shows("U", web)
			s.shows("U", evil)
		}, map[string]string{"web": "restore 300"}},
		{"edited before it was seen, and its pods have another", pairs{"a": "web"}, nil, func(s *story) {
			s.shows("U", evil)
			other := identityOf(400, web, 2)
			other.UID = slim.ParseUID("V")
			s.upsertObject(other)
		}, map[string]string{"web": "identity 400 exists"}},
		{"made anew by somebody else", pairs{"a": "web"}, nil, func(s *story) {
			s.shows("U", web)
			s.shows("V", evil)
		}, map[string]string{"web": "make 256"}},
		{"edited, and used by nobody", nil, nil, func(s *story) {
			s.shows("U", web)
			s.shows("U", evil)
		}, map[string]string{"web": noPod, "evil": noPod}},
		{"edited into what its users have", pairs{"a": "web", "b": "evil"}, []string{"b"}, func(s *story) {
			s.shows("U", web)
			s.shows("U", evil)
		}, map[string]string{"web": "make 256", "evil": exists300}},
		{"edited into what some of its users have", pairs{"a": "web", "b": "evil"}, []string{"a", "b"}, func(s *story) {
			s.shows("U", web)
			s.shows("U", evil)
		}, map[string]string{"web": "make 256", "evil": exists300}},
		{"edited, and chosen by pods whose endpoints have another", pairs{"a": "web", "b": "other"}, []string{"b"}, func(s *story) {
			s.shows("U", web)
			s.shows("U", evil)
		}, map[string]string{"web": "make 256"}},
		{"made here and edited, and its pods are gone", pairs{"a": "web"}, nil, func(s *story) {
			s.sets[web].inFlight = true
			s.recordCreate(web, observation{number: 300, uid: slim.ParseUID("U"), labels: web, created: 1}, true)
			s.deletePod(slim.Key{Namespace: "n", Name: "a"})
			s.shows("U", evil)
		}, map[string]string{"web": "restore 300"}},
		{"edited before it was seen", pairs{"a": "web", "b": "evil"}, []string{"a"}, func(s *story) {
			s.shows("U", evil)
		}, map[string]string{"web": "make 256", "evil": exists300}},
		{"put right by hand after that", pairs{"a": "web"}, []string{"gone"}, func(s *story) {
			s.shows("U", evil)
			s.shows("U", web)
		}, map[string]string{"web": exists300}},
		{"put right by hand, when pods had taken the edit for true", pairs{"a": "web", "b": "evil"}, []string{"b"}, func(s *story) {
			s.shows("U", evil)
			s.shows("U", web)
		}, map[string]string{"web": "make 256", "evil": "restore 300"}},
		{"the labels of another filter", pairs{"a": "web"}, []string{"a"}, func(s *story) {
			old := web.Map()
			old["k8s:team"] = "x"
			s.shows("U", slim.MakeLabels(old))
		}, map[string]string{"web": "make 256"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newStory(t, test.pods)
			for _, pod := range test.carry {
				s.carry[pod] = 300
			}
			test.do(s)
			for app, want := range test.want {
				if got := s.todo(app); got != want {
					t.Errorf("for %s: %s, want %s", app, got, want)
				}
			}
			if err := s.consistent(); err != nil {
				t.Error(err)
			}
		})
	}
}

// ID-21: an identity that goes is made again with the labels that it was given, as far as they are known.
func TestMadeAgainWithGivenLabels(t *testing.T) {
	web, evil := of("web"), of("evil")
	for _, test := range []struct {
		name string
		pods pairs
		do   func(*story)
		want map[string]string
	}{
		{"edited while it was looked at", pairs{"a": "web"}, func(s *story) {
			s.shows("U", web)
			s.shows("U", evil)
		}, map[string]string{"web": "make 300", "evil": noPod}},
		{"edited before it was seen", pairs{"a": "web", "b": "evil"}, func(s *story) {
			s.shows("U", evil)
		}, map[string]string{"evil": "make 300", "web": "make 256"}},
		{"never edited, and its pod has other labels by now", pairs{"a": "other"}, func(s *story) {
			s.shows("U", web)
		}, map[string]string{"web": "make 300"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newStory(t, test.pods)
			s.carry["a"] = 300
			test.do(s)
			s.deleteObject("300", s.revision)
			for app, want := range test.want {
				if got := s.todo(app); got != want {
					t.Errorf("for %s: %s, want %s", app, got, want)
				}
			}
			if err := s.consistent(); err != nil {
				t.Error(err)
			}
		})
	}
}

// admission is an API server that changes labels as it stores them.
type admission struct {
	k8s.Client
	changes func(verb string, of pairs)
	lose    int // answers to the first creations
	stored  map[string]*unstructured.Unstructured
	made    int
	updates int
}

func (a *admission) store(u *unstructured.Unstructured, verb string) *unstructured.Unstructured {
	u = u.DeepCopy()
	all, _, _ := unstructured.NestedStringMap(u.Object, "security-labels")
	a.changes(verb, all)
	_ = unstructured.SetNestedStringMap(u.Object, all, "security-labels")
	u.SetResourceVersion(fmt.Sprint(100 + a.made + a.updates))
	a.stored[u.GetName()] = u
	return u.DeepCopy()
}

func (a *admission) Create(_ context.Context, resource schema.GroupVersionResource, obj runtime.Object) (*unstructured.Unstructured, error) {
	o := obj.(*v2.CiliumIdentity)
	if a.stored[o.Name] != nil {
		return nil, apierrors.NewAlreadyExists(resource.GroupResource(), o.Name)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, err
	}
	a.made++
	u := &unstructured.Unstructured{Object: content}
	u.SetUID(slim.ParseUID(fmt.Sprint("uid-", a.made)).API())
	u = a.store(u, "create")
	if a.lose > 0 {
		a.lose--
		return nil, errNoAnswer
	}
	return u, nil
}

func (a *admission) Get(_ context.Context, ref k8s.Ref) (*unstructured.Unstructured, error) {
	if u := a.stored[ref.Name]; u != nil {
		return u.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(ref.Resource.GroupResource(), ref.Name)
}

func (a *admission) Modify(ctx context.Context, ref k8s.Ref, edit func(*unstructured.Unstructured) error) (*unstructured.Unstructured, bool, error) {
	u, err := a.Get(ctx, ref)
	if err == nil {
		err = edit(u)
	}
	if err != nil {
		return nil, false, err
	}
	a.updates++
	return a.store(u, "update"), true, nil
}

// ID-20 and ID-38: however the API server changes labels, and however often that is tried, a
// set of labels gets one identity, or two if the answer to the first was lost. The
// error names the labels, the identity and the field.
func TestAdmissionChangesLabels(t *testing.T) {
	inject := func(_ string, of pairs) { of["k8s:injected"] = "yes" }
	for _, test := range []struct {
		name    string
		changes func(verb string, of pairs)
		lose    int
		most    int
		heals   bool
	}{
		{"adds one at creation", func(verb string, of pairs) {
			if verb == "create" {
				inject(verb, of)
			}
		}, 0, 1, true},
		{"adds one always", inject, 0, 1, false},
		{"adds another each time", func() func(string, pairs) {
			n := 0
			return func(_ string, of pairs) { n++; of[fmt.Sprint("k8s:injected-", n)] = "yes" }
		}(), 0, 1, false},
		{"takes one away", func(_ string, of pairs) { delete(of, "k8s:app") }, 0, 1, false},
		{"adds one of the namespace", func(_ string, of pairs) { of["k8s:"+labels.NamespaceLabelPrefix+"x"] = "y" }, 0, 1, false},
		{"adds one, and the answer is lost", inject, 1, 2, false},
		{"adds one of the namespace, and the answer is lost", func(_ string, of pairs) { of["k8s:"+labels.NamespaceLabelPrefix+"x"] = "y" }, 1, 2, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := &admission{changes: test.changes, lose: test.lose, stored: map[string]*unstructured.Unstructured{}}
			tb, _ := plan(t, "n")
			m := &controller{
				params: params{Client: server, Permissions: &k8s.Permissions{}, Metrics: newMetrics(metrics.Factory{}), Health: health.NewTree().Reporter("identity"), Log: slog.New(slog.DiscardHandler)},
				table:  tb, enqueue: func(slim.Labels, ...k8s.Trigger) {},
			}
			tb.upsertPod(podOf("n", "web", pairs{"app": "web"}))
			var last error
			for range 200 {
				last = m.reconcile(t.Context(), of("web"))
			}
			if server.made > test.most {
				t.Errorf("%d identities were made", server.made)
			}
			if n, exists := m.ForPod(podName("n", "web")); exists != test.heals || n == 0 {
				t.Errorf("the pod has %d, which is there: %t", n, exists)
			}
			if test.heals {
				if last != nil || server.updates != 1 {
					t.Errorf("%d updates: %v", server.updates, last)
				}
				return
			}
			if last == nil || !strings.Contains(last.Error(), "security-labels of identity") || !strings.Contains(last.Error(), "k8s:app=web") {
				t.Errorf("the error is %v", last)
			}
			if err := tb.consistent(); err != nil {
				t.Error(err)
			}
		})
	}
}

// ID-20: numbers that turn out to be taken, one after another, are drawn with pauses.
func TestTakenNumbersAreDrawnWithPauses(t *testing.T) {
	server := &admission{changes: func(string, pairs) {}, stored: map[string]*unstructured.Unstructured{}}
	for n := 256; n < 300; n++ {
		u := encoded(identityOf(identity.Number(n), of("other"), slim.Revision(n)))
		u.SetUID(slim.ParseUID(fmt.Sprint("theirs-", n)).API())
		server.stored[u.GetName()] = u
	}
	tb, _ := plan(t, "n")
	m := &controller{
		params: params{Client: server, Metrics: newMetrics(metrics.Factory{}), Health: health.NewTree().Reporter("identity"), Log: slog.New(slog.DiscardHandler)},
		table:  tb, enqueue: func(slim.Labels, ...k8s.Trigger) {},
	}
	tb.upsertPod(podOf("n", "web", pairs{"app": "web"}))
	var pauses []bool
	for range 5 {
		pauses = append(pauses, m.reconcile(t.Context(), of("web")) != nil)
	}
	if !slices.Equal(pauses, []bool{false, false, true, true, true}) {
		t.Errorf("pauses are %v", pauses)
	}
	clear(server.stored)
	if err := m.reconcile(t.Context(), of("web")); err != nil || tb.sets[of("web")].collisions != 0 {
		t.Errorf("a number that is free: %v", err)
	}
}
