// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustertest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/skep-operator/skep/runtime/waittest"
)

func TestRBACDeniesAndTheAuditLogTells(t *testing.T) {
	c := Shared(t)
	log := c.Audit(t)
	alice := newClient(t, c.UserConfig(t, "alice", "devs"))
	_, err := alice.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) {
		t.Fatalf("a user without rights got %v, want Forbidden", err)
	}
	var found int
	for event := range log.Events(t) {
		if event.User.Username != "alice" {
			continue
		}
		found++
		if event.Verb != "list" || event.ObjectRef.Resource != "pods" || event.ObjectRef.Namespace != "default" ||
			event.ResponseStatus.Code != 403 || event.Stage != "ResponseComplete" || event.Mutates() ||
			!slices.Contains(event.User.Groups, "devs") || event.RequestReceivedTimestamp.IsZero() {
			t.Errorf("the event is %+v", event)
		}
	}
	if found != 1 {
		t.Errorf("the log has %d events of the user, want 1", found)
	}
}

func TestWhoHasAnAnswerFindsItsEvent(t *testing.T) {
	c := Shared(t)
	ns := newNamespace(t, c)
	client := newClient(t, c.AdminConfig(t))
	log := c.Audit(t)
	for i := range 100 {
		name := fmt.Sprintf("c-%d", i)
		if _, err := client.CoreV1().ConfigMaps(ns).Create(t.Context(), newConfigMap(name), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		found := false
		for event := range log.Events(t) {
			found = found || (event.ObjectRef.Name == name && event.Mutates() && event.ResponseStatus.Code == 201)
		}
		if !found {
			t.Fatalf("the answer to the creation of %s came before its event", name)
		}
	}
}

func TestServiceAccountHasTheRightsOfItsRole(t *testing.T) {
	c := Shared(t)
	ns := newNamespace(t, c)
	admin := newClient(t, c.AdminConfig(t))
	until(t, "the default service account", func(ctx context.Context) bool {
		_, err := admin.CoreV1().ServiceAccounts(ns).Get(ctx, "default", metav1.GetOptions{})
		return err == nil
	})
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}}},
	}
	if _, err := admin.RbacV1().Roles(ns).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: "default"}},
	}
	if _, err := admin.RbacV1().RoleBindings(ns).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, kubeconfig := range map[string]string{
		"straight":      c.ServiceAccountKubeconfig(t, ns, "default"),
		"through proxy": c.Proxy().ServiceAccountKubeconfig(t, ns, "default"),
	} {
		client := newClient(t, config(t, kubeconfig))
		// The authorizer learns of a new binding by watching.
		until(t, "the right to list", func(ctx context.Context) bool {
			_, err := client.CoreV1().ConfigMaps(ns).List(ctx, metav1.ListOptions{})
			return err == nil
		})
		if _, err := client.CoreV1().Secrets(ns).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("%s: listing secrets got %v, want Forbidden", name, err)
		}
	}
}

func TestIdentityTravelsThroughProxies(t *testing.T) {
	c := Shared(t)
	door := c.NewProxy(t)
	for name, tc := range map[string]struct{ kubeconfig, want string }{
		"user straight":      {c.UserKubeconfig(t, "bob", "x", "y"), "bob [x y system:authenticated]"},
		"user, proxy":        {door.UserKubeconfig(t, "bob", "x", "y"), "bob [x y system:authenticated]"},
		"admin straight":     {c.Kubeconfig(), "devcluster-admin [system:masters system:authenticated]"},
		"admin, proxy":       {c.Proxy().Kubeconfig(), "devcluster-admin [system:masters system:authenticated]"},
		"admin, other proxy": {door.Kubeconfig(), "devcluster-admin [system:masters system:authenticated]"},
	} {
		client := newClient(t, config(t, tc.kubeconfig))
		review, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := fmt.Sprint(review.Status.UserInfo.Username, " ", review.Status.UserInfo.Groups); got != tc.want {
			t.Errorf("%s: the server sees %s, want %s", name, got, tc.want)
		}
	}
}

func TestAPIServerStopsAndStartsAlone(t *testing.T) {
	t.Parallel()
	c := Start(t)
	client := newClient(t, c.AdminConfig(t))
	door := newClient(t, c.Proxy().AdminConfig(t))
	if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), newConfigMap("kept"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	watch, err := client.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()

	c.StopAPIServer(t)
	if _, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a stopped API server answers %v, want connection refused", err)
	}
	if err := listBriefly(t, door); err == nil || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
		t.Errorf("through the proxy a stopped API server answers %v, want a broken connection", err)
	}
	for range watch.ResultChan() {
		// It ends: the test would hang otherwise.
	}
	c.StartAPIServer(t)
	if _, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	// The controllers live on.
	ns := newNamespace(t, c)
	until(t, "the default service account of a new namespace", func(ctx context.Context) bool {
		_, err := client.CoreV1().ServiceAccounts(ns).Get(ctx, "default", metav1.GetOptions{})
		return err == nil
	})
}

func TestTwoClustersAtOnce(t *testing.T) {
	t.Parallel()
	a, b := Shared(t), Start(t)
	ns := newNamespace(t, a)
	if _, err := newClient(t, b.AdminConfig(t)).CoreV1().Namespaces().Get(t.Context(), ns, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a namespace of one cluster in the other: %v", err)
	}
	if a.Info().PID == b.Info().PID || a.Info().APIServer == b.Info().APIServer {
		t.Error("two clusters are one")
	}
}

func TestWatchListAndAuditLevel(t *testing.T) {
	t.Parallel()
	c := Start(t, WithoutWatchList(), AuditLevel("RequestResponse"))
	client := newClient(t, c.AdminConfig(t))
	streaming := metav1.ListOptions{
		SendInitialEvents: ptr.To(true), AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	}
	if w, err := client.CoreV1().ConfigMaps("default").Watch(t.Context(), streaming); !apierrors.IsInvalid(err) {
		if err == nil {
			w.Stop()
		}
		t.Errorf("a server without WatchList answers %v to a streaming list, want Invalid", err)
	}
	log := c.Audit(t)
	if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), newConfigMap("told"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for event := range log.Events(t) {
		if event.ObjectRef.Name == "told" && strings.Contains(string(event.RequestObject), `"told"`) && len(event.ResponseObject) > 0 {
			return
		}
	}
	t.Error("no event tells what was asked and answered")
}

func TestStreamingListsByDefault(t *testing.T) {
	c := Shared(t)
	w, err := newClient(t, c.AdminConfig(t)).CoreV1().ConfigMaps("kube-system").Watch(t.Context(), metav1.ListOptions{
		SendInitialEvents: ptr.To(true), AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		if object, ok := event.Object.(*corev1.ConfigMap); ok && object.Annotations[metav1.InitialEventsAnnotationKey] == "true" {
			return
		}
	}
	t.Error("the watch ended before its initial events did")
}

func TestDeathIsTold(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	p, err := start(t.TempDir(), "up")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.ended
	if err := p.stop(); err == nil || !strings.Contains(err.Error(), "devcluster died") || !strings.Contains(err.Error(), "kubernetes.log") {
		t.Errorf("stopping a dead devcluster says %v", err)
	}
}

func TestDiesWithItsParent(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	p, err := start(t.TempDir(), "up", "--remove-dir")
	if err != nil {
		t.Fatal(err)
	}
	p.parent.Close() // as the kernel does for a process that was killed
	select {
	case <-p.ended:
	case <-time.After(waittest.Limit):
		p.stop()
		t.Fatal("it lives on")
	}
	if p.err != nil {
		t.Errorf("it ended with %v", p.err)
	}
	if _, err := os.Stat(p.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it left its directory: %v", err)
	}
	p.control.Close()
}

func TestStartTellsWhatIsWrong(t *testing.T) {
	skipIfShort(t)
	_, err := start(t.TempDir(), "up", "--feature-gates", "NoSuchGate=true")
	if err == nil || !strings.Contains(err.Error(), "NoSuchGate") {
		t.Errorf("a cluster with an unknown feature gate: %v", err)
	}
}

func TestDirectoryIsTakenUpAgain(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	dir := t.TempDir()
	for i := range 2 {
		p, err := start(dir, "up")
		if err != nil {
			t.Fatal(err)
		}
		c := &Cluster{p}
		client := newClient(t, c.AdminConfig(t))
		if i == 0 {
			_, err = client.CoreV1().ConfigMaps("default").Create(t.Context(), newConfigMap("kept"), metav1.CreateOptions{})
		} else {
			_, err = client.CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{})
		}
		if err != nil {
			t.Errorf("run %d: %v", i, err)
		}
		if i == 0 {
			if _, err := start(dir, "up"); err == nil || !strings.Contains(err.Error(), "runs in") {
				t.Errorf("a second devcluster in the same directory: %v", err)
			}
		}
		if err := p.stop(); err != nil {
			t.Error(err)
		}
	}
}
