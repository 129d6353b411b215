// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/health"

	"github.com/skep-operator/skep/resources/leading"
)

var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

// guarded is an API server with a role, without a wire.
type guarded struct {
	memory
	verbs   []string // that the role allows on widgets, and on what a module needs
	webhook bool     // refuses what the role allows
	reviews int
	posts   int
}

// RoundTrip implements http.RoundTripper.
func (g *guarded) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.HasSuffix(req.URL.Path, "/selfsubjectrulesreviews") {
		g.reviews++
		return g.answer(200, authorizationv1.SelfSubjectRulesReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectRulesReview"},
			Status: authorizationv1.SubjectRulesReviewStatus{
				ResourceRules: []authorizationv1.ResourceRule{{Verbs: g.verbs, APIGroups: []string{widgets.Group}, Resources: []string{widgets.Resource}}},
			},
		})
	}
	g.posts++
	if g.webhook || len(g.verbs) == 0 {
		return g.refuse(apierrors.NewForbidden(widgets.GroupResource(), "", errors.New("no")))
	}
	u := &unstructured.Unstructured{}
	if err := json.NewDecoder(req.Body).Decode(&u.Object); err != nil {
		return nil, err
	}
	u.SetResourceVersion(g.next())
	return g.memory.answer(200, u.Object)
}

type guardedDesk struct {
	*client
	*guarded
	role *roleCheck
	tree *health.Tree
	log  *bytes.Buffer
}

func newGuardedDesk(t *testing.T, needs map[string][]rbacv1.PolicyRule) *guardedDesk {
	t.Helper()
	g := &guardedDesk{guarded: &guarded{}, tree: health.NewTree(), log: &bytes.Buffer{}}
	d := openTransport(t, func(c *Config) { c.K8sAPIServer, c.QPS = "127.0.0.1:1", 1e6 })
	d.log = slog.New(slog.NewTextHandler(g.log, nil))
	d.reads.next = g.guarded
	m := &moduleTransport{guardedTransport: d, module: "duty", writer: &writer{fence: leading.Unfenced(), next: g.guarded}}
	p := newPermissions()
	var err error
	if g.client, err = newClient(m, p, nil); err != nil {
		t.Fatal(err)
	}
	if g.role, err = newRoleCheck(g.client, p, func() *graph.Graph { return duties(needs) }, g.tree, d.log); err != nil {
		t.Fatal(err)
	}
	return g
}

func (g *guardedDesk) make(t *testing.T, namespace string) error {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetAPIVersion("example.com/v1")
	u.SetKind("Widget")
	u.SetNamespace(namespace)
	u.SetName("w")
	_, err := g.Create(why(t), widgets, u)
	return err
}

// A permission that the role lacks costs one request and one warning, and nothing until
// it is granted.
func TestAMissingPermissionIsOneRequestAndOneWarning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuardedDesk(t, nil)
		var denied *PermissionError
		for range 100 {
			if err := g.make(t, ""); !errors.As(err, &denied) || !apierrors.IsForbidden(err) || !Refused(err) {
				t.Fatalf("%v", err)
			}
			time.Sleep(time.Second)
		}
		if g.posts != 1 || g.reviews != 1 {
			t.Errorf("%d requests and %d questions for 100 objects", g.posts, g.reviews)
		}
		for range 10 {
			time.Sleep(roleCheckInterval)
			if err := g.role.again(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if g.reviews != 11 {
			t.Errorf("%d questions for 10 looks", g.reviews)
		}
		select {
		case <-denied.Granted:
			t.Error("granted too early")
		default:
		}
		g.verbs = []string{"create"}
		if err := g.role.again(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-denied.Granted
		if err := g.make(t, ""); err != nil {
			t.Error(err)
		}
		reviews := g.reviews
		time.Sleep(time.Hour)
		if err := g.role.again(t.Context()); err != nil || g.reviews != reviews {
			t.Errorf("%d questions where nothing is missing (%v)", g.reviews-reviews, err)
		}
		if w, i := strings.Count(g.log.String(), "level=WARN"), strings.Count(g.log.String(), "level=INFO"); w != 1 || i != 1 {
			t.Errorf("want a warning, and a line when it is granted:\n%s", g.log)
		}
	})
}

// An admission webhook refuses single objects with 403, too: that is no hold for others.
func TestARefusalOfAWebhookIsNoMissingPermission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuardedDesk(t, nil)
		g.verbs, g.webhook = []string{"*"}, true
		for range 50 {
			var denied *PermissionError
			if err := g.make(t, ""); errors.As(err, &denied) || !apierrors.IsForbidden(err) {
				t.Fatalf("%v", err)
			}
		}
		if g.posts != 50 || g.reviews != 1 {
			t.Errorf("%d requests and %d questions for 50 refusals in a row", g.posts, g.reviews)
		}
	})
}

// In namespaces roles differ: what one of them forbids is tried in others.
func TestAPermissionMissingInANamespaceIsTriedInOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuardedDesk(t, nil)
		for _, namespace := range []string{"a", "b", "c"} {
			var denied *PermissionError
			if err := g.make(t, namespace); !errors.As(err, &denied) {
				t.Fatalf("%v", err)
			}
		}
		if g.posts != 3 {
			t.Errorf("%d requests", g.posts)
		}
	})
}

// A module that lacked a permission at the start is not degraded any more when it has got it.
func TestPermissionsRecoverWhenTheyAreGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuardedDesk(t, map[string][]rbacv1.PolicyRule{"duty": {Allow("create,update", widgets.GroupResource())}})
		shown := func() string {
			var texts []string
			for _, s := range g.tree.Degraded() {
				texts = append(texts, s.ID+": "+s.Message)
			}
			return strings.Join(texts, "\n")
		}
		if err := g.role.check(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			verbs []string
			want  string
		}{
			{nil, "duty.permissions: the role lacks create widgets.example.com, update widgets.example.com"},
			{[]string{"create"}, "duty.permissions: the role lacks update widgets.example.com"},
			{[]string{"create", "update"}, ""},
		} {
			g.verbs = step.verbs
			if err := g.role.again(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := shown(); got != step.want {
				t.Errorf("%v: %q, want %q", step.verbs, got, step.want)
			}
		}
		if w, i := strings.Count(g.log.String(), "level=WARN"), strings.Count(g.log.String(), "level=INFO"); w != 2 || i != 1 {
			t.Errorf("want a warning for each state, and a line at the end:\n%s", g.log)
		}
	})
}

// The same with the authorizer of a real API server.
func TestAPermissionIsGrantedOnAServer(t *testing.T) {
	d := newDesk(t)
	only := d.as(t, "reader", Allow("list", configMaps.GroupResource()))
	role, err := newRoleCheck(only.client, only.permissions, func() *graph.Graph { return duties(nil) }, health.NewTree(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var denied *PermissionError
	_, err = only.Create(why(t), configMaps, newConfigMap(d.namespace, "x", nil))
	if !errors.As(err, &denied) || denied.Permission != "create configmaps" {
		t.Fatalf("%v", err)
	}
	roles := admin(t, d.cluster).RbacV1().ClusterRoles()
	granted, err := roles.Get(t.Context(), d.namespace+"-reader", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	granted.Rules = append(granted.Rules, Allow("create", configMaps.GroupResource()))
	if _, err := roles.Update(t.Context(), granted, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the permission", func() bool {
		if err := role.again(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case <-denied.Granted:
			return true
		default:
			return false
		}
	})
	if _, err := only.Create(why(t), configMaps, newConfigMap(d.namespace, "x", nil)); err != nil {
		t.Error(err)
	}
}
