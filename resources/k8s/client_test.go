// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/skep-operator/skep/resources/clustertest"
)

// desk is a module's client, and the door of the server that it goes through.
type desk struct {
	*client
	transport *guardedTransport
	proxy     *clustertest.Proxy
	namespace string
	cluster   *clustertest.Cluster
	seen      int64
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	t.Setenv(StrictCause, "1")
	cluster := clustertest.Shared(t)
	proxy := cluster.NewProxy(t)
	d := openTransport(t, through(proxy.Kubeconfig()))
	d.lead(t)
	return &desk{client: d.client(t, "duty"), transport: d, proxy: proxy, namespace: newNamespace(t, cluster), cluster: cluster}
}

// as is a desk of a user who may do only so much, in the desk's namespace too.
func (d *desk) as(t *testing.T, user string, rules ...rbacv1.PolicyRule) *desk {
	t.Helper()
	api := admin(t, d.cluster).RbacV1()
	name := d.namespace + "-" + user
	_, err := api.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = api.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	guard := openTransport(t, through(d.proxy.UserKubeconfig(t, name)))
	guard.lead(t)
	other := *d
	other.client, other.transport = guard.client(t, "duty"), guard
	// The authorizer reads roles from a watch of its own.
	until(t, "the role of "+user, func() bool {
		_, err := other.getByList(t.Context(), other.ref("any"))
		return !apierrors.IsForbidden(err)
	})
	other.verbs(t)
	return &other
}

func (d *desk) ref(name string) Ref {
	return Ref{Resource: configMaps, Namespace: d.namespace, Name: name}
}

func (d *desk) create(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	obj, err := d.Create(why(t), configMaps, newConfigMap(d.namespace, name, map[string]string{"a": "1"}))
	if err != nil {
		t.Fatal(err)
	}
	return obj
}

// verbs are those of the requests since it was asked last.
func (d *desk) verbs(t *testing.T) []string {
	t.Helper()
	var verbs []string
	for _, r := range d.proxy.Requests(t, d.seen) {
		verbs, d.seen = append(verbs, r.Verb), r.Seq
	}
	return verbs
}

func (d *desk) expect(t *testing.T, what string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, d.verbs(t)); diff != "" {
		t.Errorf("%s: requests (-want +got):\n%s", what, diff)
	}
}

func label(u *unstructured.Unstructured) error {
	u.SetLabels(map[string]string{"changed": "yes"})
	return nil
}

func TestCreateReturnsTheObjectAsStored(t *testing.T) {
	obj := newDesk(t).create(t, "x")
	if obj.GetUID() == "" || obj.GetResourceVersion() == "" || obj.GetKind() != "ConfigMap" {
		t.Errorf("not as stored: %v", obj)
	}
}

func TestModifyKeepsWhatItDoesNotKnow(t *testing.T) {
	d := newDesk(t)
	before := newConfigMap(d.namespace, "x", map[string]string{"a": "1"})
	before.BinaryData = map[string][]byte{"b": {0xff, 0}}
	before.Annotations = map[string]string{"who": "somebody"}
	before.Finalizers = []string{"example.com/keep"}
	before.Immutable = ptr.To(true)
	api := admin(t, d.cluster).CoreV1().ConfigMaps(d.namespace)
	before, err := api.Create(t.Context(), before, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.unfinalize(t, "x") })
	if _, written, err := d.Modify(why(t), d.ref("x"), label); err != nil || !written {
		t.Fatalf("written %v, %v", written, err)
	}
	after, err := api.Get(t.Context(), "x", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if after.Labels["changed"] != "yes" {
		t.Errorf("labels: %v", after.Labels)
	}
	after.Labels, after.ResourceVersion, after.ManagedFields = before.Labels, before.ResourceVersion, before.ManagedFields
	if diff := cmp.Diff(before, after); diff != "" {
		t.Error(diff)
	}
}

func (d *desk) unfinalize(t *testing.T, name string) {
	patch := []byte(`{"metadata":{"finalizers":null}}`)
	_, err := admin(t, d.cluster).CoreV1().ConfigMaps(d.namespace).Patch(t.Context(), name, "application/merge-patch+json", patch, metav1.PatchOptions{})
	if err != nil && t.Context().Err() == nil {
		t.Error(err)
	}
}

func TestModifyWritesNothingWhenNothingChanges(t *testing.T) {
	d := newDesk(t)
	leases := coordinationv1.SchemeGroupVersion.WithResource("leases")
	_, err := d.Create(why(t), leases, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: "x"},
		Spec:       coordinationv1.LeaseSpec{LeaseDurationSeconds: ptr.To(int32(15))},
	})
	if err != nil {
		t.Fatal(err)
	}
	d.verbs(t)
	for _, same := range []any{15, int64(15), 15.0} {
		obj, written, err := d.Modify(why(t), Ref{Resource: leases, Namespace: d.namespace, Name: "x"}, func(u *unstructured.Unstructured) error {
			u.Object["spec"].(map[string]any)["leaseDurationSeconds"] = same
			return nil
		})
		if err != nil || written || obj.GetUID() == "" {
			t.Errorf("%T: written %v, %v, %v", same, written, err, obj)
		}
		d.expect(t, fmt.Sprintf("%T", same), "get")
	}
}

func TestModifyEditsAgainAfterAConflict(t *testing.T) {
	d := newDesk(t)
	d.create(t, "x")
	d.verbs(t)
	edits := 0
	obj, written, err := d.Modify(why(t), d.ref("x"), func(u *unstructured.Unstructured) error {
		if edits++; edits == 1 {
			d.writeFromElsewhere(t, "x", "b", "2")
		}
		u.SetResourceVersion("") // a careless edit does not make the write a blind one
		return label(u)
	})
	if err != nil || !written || edits != 2 {
		t.Fatalf("written %v after %d edits, %v", written, edits, err)
	}
	data, _, _ := unstructured.NestedStringMap(obj.Object, "data")
	if !maps.Equal(data, map[string]string{"a": "1", "b": "2"}) || obj.GetLabels()["changed"] != "yes" {
		t.Errorf("one of both writes is lost: %v", obj)
	}
	d.expect(t, "a conflict", "get", "update", "get", "update")
}

func TestModifyLeavesEndlessConflictsToItsCaller(t *testing.T) {
	d := newDesk(t)
	d.create(t, "x")
	edits := 0
	_, written, err := d.Modify(why(t), d.ref("x"), func(u *unstructured.Unstructured) error {
		edits++
		d.writeFromElsewhere(t, "x", "b", fmt.Sprint(edits))
		return label(u)
	})
	if !apierrors.IsConflict(err) || written || edits != conflicts {
		t.Errorf("written %v after %d edits, %v", written, edits, err)
	}
}

func (d *desk) writeFromElsewhere(t *testing.T, name, key, value string) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"data":{%q:%q}}`, key, value)
	_, err := admin(t, d.cluster).CoreV1().ConfigMaps(d.namespace).Patch(t.Context(), name, "application/merge-patch+json", patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func TestModifyStopsWhereTheEditFails(t *testing.T) {
	d := newDesk(t)
	d.create(t, "x")
	d.verbs(t)
	no := errors.New("no")
	if _, _, err := d.Modify(why(t), d.ref("x"), func(*unstructured.Unstructured) error { return no }); !errors.Is(err, no) {
		t.Errorf("%v", err)
	}
	if _, _, err := d.Modify(why(t), d.ref("absent"), label); !apierrors.IsNotFound(err) {
		t.Errorf("an object that is not there: %v", err)
	}
	d.expect(t, "no write", "get", "get")
}

func TestGetListsByNameWhereTheRoleForbidsGet(t *testing.T) {
	d := newDesk(t)
	d.create(t, "x")
	d.create(t, "y")
	only := d.as(t, "lister", Allow("list,update", configMaps.GroupResource()))
	if _, written, err := only.Modify(why(t), only.ref("y"), label); err != nil || !written {
		t.Errorf("written %v, %v", written, err)
	}
	only.expect(t, "what the role allows is not known", "get", "list", "update")
	only.learn(t)
	obj, err := only.Get(t.Context(), only.ref("y"))
	if err != nil || obj.GetName() != "y" || obj.GetLabels()["changed"] != "yes" {
		t.Errorf("%v, %v", obj, err)
	}
	if _, err := only.Get(t.Context(), only.ref("absent")); !apierrors.IsNotFound(err) {
		t.Errorf("an object that is not there: %v", err)
	}
	requests := only.proxy.Requests(t, only.seen)
	only.expect(t, "what the role allows is known", "list", "list")
	if !strings.Contains(requests[0].Path, "fieldSelector=metadata.name%3Dy") {
		t.Errorf("it lists %s, want one object by name", requests[0].Path)
	}
}

// learn reads what the role allows.
func (d *desk) learn(t *testing.T) {
	t.Helper()
	if err := d.permissions.read(t.Context(), d.reviews(t)); err != nil {
		t.Fatal(err)
	}
	if !d.permissions.Known() {
		t.Fatal("this API server does not list all that is allowed")
	}
	d.verbs(t)
}

func TestGetTriesInEarnestWhereTheListIsForbidden(t *testing.T) {
	d := newDesk(t)
	d.create(t, "x")
	// What the role allowed at the start, and what it allows now.
	only := d.as(t, "getter", Allow("list", configMaps.GroupResource()))
	only.permissions.known = true
	role, err := admin(t, d.cluster).RbacV1().ClusterRoles().Get(t.Context(), d.namespace+"-getter", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	role.Rules = []rbacv1.PolicyRule{Allow("get", configMaps.GroupResource())}
	if _, err := admin(t, d.cluster).RbacV1().ClusterRoles().Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the changed role", func() bool {
		_, err := only.getByList(t.Context(), only.ref("x"))
		return apierrors.IsForbidden(err)
	})
	if _, err := only.Get(t.Context(), only.ref("x")); err != nil {
		t.Error(err)
	}
}

func TestASubresourceIsReadWithItsObject(t *testing.T) {
	d := newDesk(t)
	_, err := admin(t, d.cluster).CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: d.namespace}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	only := d.as(t, "statuswriter", Allow("list", configMaps.GroupResource()), Allow("get", nodes), Allow("update", nodesStatus))
	only.learn(t)
	_, written, err := only.Modify(why(t), Ref{Resource: nodes.WithVersion("v1"), Name: d.namespace, Subresource: "status"}, func(u *unstructured.Unstructured) error {
		return unstructured.SetNestedField(u.Object, "Running", "status", "phase")
	})
	if err != nil || !written {
		t.Errorf("written %v, %v", written, err)
	}
	only.expect(t, "a subresource", "get", "update")
}

func TestDeleteHitsOnlyTheObjectMeant(t *testing.T) {
	d := newDesk(t)
	obj := d.create(t, "x")
	for name, c := range map[string]struct {
		only Preconditions
		ok   func(error) bool
	}{
		"another object of that name": {Preconditions{UID: "other"}, func(err error) bool { return IsConflict(err, d.ref("x")) }},
		"an older state":              {Preconditions{UID: obj.GetUID(), ResourceVersion: "1"}, func(err error) bool { return IsConflict(err, d.ref("x")) }},
		"no precondition":             {Preconditions{}, func(err error) bool { return err != nil && !apierrors.IsConflict(err) }},
	} {
		if err := d.Delete(why(t), d.ref("x"), c.only); !c.ok(err) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := d.Get(t.Context(), d.ref("x")); err != nil {
			t.Fatalf("%s: the object is gone: %v", name, err)
		}
	}
	if err := d.Delete(why(t), d.ref("x"), Preconditions{UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion()}); err != nil {
		t.Error(err)
	}
	if _, err := d.Get(t.Context(), d.ref("x")); !apierrors.IsNotFound(err) {
		t.Errorf("it is still there: %v", err)
	}
	if verbs := d.verbs(t); slices.Contains(verbs, "deletecollection") {
		t.Errorf("requests: %v", verbs)
	}
}

func TestDeleteOfTheOneInACollection(t *testing.T) {
	d := newDesk(t)
	d.create(t, "x")
	y := d.create(t, "y")
	only := d.as(t, "collector", Allow("list,deletecollection", configMaps.GroupResource()))
	only.learn(t)
	if err := only.Delete(why(t), only.ref("y"), Preconditions{UID: "other"}); !IsConflict(err, only.ref("y")) {
		t.Errorf("another object of that name: %v", err)
	}
	if err := only.Delete(why(t), only.ref("absent"), Preconditions{UID: "other"}); !IsNotFound(err, only.ref("absent")) {
		t.Errorf("an object that is not there: %v", err)
	}
	if err := only.Delete(why(t), only.ref("y"), Preconditions{UID: y.GetUID()}); err != nil {
		t.Error(err)
	}
	only.expect(t, "deletes", "deletecollection", "deletecollection", "deletecollection")
	if _, err := d.Get(t.Context(), d.ref("y")); !apierrors.IsNotFound(err) {
		t.Errorf("it is still there: %v", err)
	}
	if _, err := d.Get(t.Context(), d.ref("x")); err != nil {
		t.Errorf("another object: %v", err)
	}
}
