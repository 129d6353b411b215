// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/hive"
)

const manifestFolder = "../../deploy/manifests"

// readManifests reads the bare deployment as a chart.
func readManifests(t *testing.T) *chart {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(manifestFolder, "*.yaml"))
	if err != nil || len(files) < 6 {
		t.Fatalf("%d manifests: %v", len(files), err)
	}
	c := &chart{t: t, ports: map[string]string{}}
	for _, file := range files {
		if filepath.Base(file) != "kustomization.yaml" {
			c.sort(readObject(t, file))
		}
	}
	c.user = "system:serviceaccount:" + c.deployment.Namespace + ":" + c.deployment.Spec.Template.Spec.ServiceAccountName
	return c
}

func readObject(t *testing.T, file string) *unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict(text, &u.Object); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return u
}

// TestManifestRole holds the role of the bare deployment to what the operator
// needs under its ConfigMap: nothing less, and nothing more.
func TestManifestRole(t *testing.T) {
	c := readManifests(t)
	h := hive.New("operator", withClouds, hive.Environ(func(string) (string, bool) { return "", false }))
	flags := h.FlagSet()
	var args []string
	for key, value := range c.config.Data {
		args = append(args, "--"+key+"="+value)
	}
	if err := errors.Join(flags.Parse(args), h.Configure(flags), h.Select()); err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(k8s.LeastRole("cilium-operator", h.Graph(), true))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(manifestFolder, "clusterrole.yaml")
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, rules, _ := strings.Cut(string(got), "\n"); rules != string(text) {
		t.Errorf("%s is not what operator rbac prints: run make generate", file)
	}
}

// TestManifestMemory keeps the garbage collector's limit below the container's,
// with room for what it does not count.
func TestManifestMemory(t *testing.T) {
	c := readManifests(t)
	resources := c.container().Resources
	soft, hard := resources.Requests.Memory().Value(), resources.Limits.Memory().Value()
	if soft < hard*80/100 || soft > hard*90/100 {
		t.Errorf("GOMEMLIMIT is %d bytes, the limit %d: it should be 80 to 90 %% of it", soft, hard)
	}
	c.resolveResources()
	if got := c.environment()["GOMEMLIMIT"]; got != strconv.FormatInt(soft, 10) {
		t.Errorf("GOMEMLIMIT is %q, and %d bytes are requested", got, soft)
	}
}

// resolveResources fills in what a kubelet does from the container's resources.
func (c *chart) resolveResources() {
	c.t.Helper()
	for i, e := range c.container().Env {
		if e.ValueFrom == nil || e.ValueFrom.ResourceFieldRef == nil {
			continue
		}
		switch ref := e.ValueFrom.ResourceFieldRef; {
		case ref.Resource == "requests.memory" && ref.Divisor.IsZero() && ref.ContainerName == c.container().Name:
			c.container().Env[i] = corev1.EnvVar{Name: e.Name, Value: fmt.Sprint(c.container().Resources.Requests.Memory().Value())}
		default:
			c.t.Fatalf("no way to fill %s from %s of %s", e.Name, ref.Resource, ref.ContainerName)
		}
	}
}

// warnings is what an API server warned of.
type warnings []string

func (w *warnings) HandleWarningHeader(_ int, _ string, text string) { *w = append(*w, text) }

// TestManifestsAreStrict has a real API server look at every manifest: no field
// is unknown or given twice, and nothing is deprecated.
func TestManifestsAreStrict(t *testing.T) {
	w := newWorld(t)
	var said warnings
	config := w.AdminConfig(t)
	config.WarningHandler = &said
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(manifestFolder, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	create := func(client dynamic.Interface, u *unstructured.Unstructured) error {
		w := *w
		w.dynamic = client
		_, err := w.resourceOf(u).Create(t.Context(), u, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict, DryRun: []string{metav1.DryRunAll}})
		return err
	}
	for _, file := range files {
		if u := readObject(t, file); u.GetKind() != "Kustomization" {
			if err := create(client, u); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
	if len(said) > 0 {
		t.Errorf("it warns of %q", said)
	}

	broken := readObject(t, filepath.Join(manifestFolder, "deployment.yaml"))
	if err := unstructured.SetNestedField(broken.Object, "1", "spec", "template", "spec", "terminationGracePeriod"); err != nil {
		t.Fatal(err)
	}
	if err := create(client, broken); !apierrors.IsBadRequest(err) {
		t.Errorf("a field that there is not: %v; the test shows nothing", err)
	}
}

// TestManifestsServe runs both replicas of the bare deployment as its service
// account, which may do what its role says and nothing else.
func TestManifestsServe(t *testing.T) {
	first, second := readManifests(t), readManifests(t)
	w := newWorld(t)
	audit := w.Audit(t)
	first.apply(w)
	for _, c := range []*chart{first, second} {
		c.resolveResources()
	}
	leader := first.run(w)
	leader.leads()
	w.awaitDefinition("CiliumNode")
	standby := second.run(w)
	standby.says("standing by", 1)
	first.probesAnswer(leader)
	second.probesAnswer(standby)
	first.measures(leader)
	nodesAreServed(&scene{world: w})
	for _, o := range []*operator{leader, standby} {
		o.fares()
	}
	if code := leader.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	standby.leads()
	w.served("after-the-hand-over")
	if code := standby.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	seen := w.requests(audit, first.user)
	if len(seen) < 20 {
		t.Errorf("only %d requests of %s were logged", len(seen), first.user)
	}
	refused := seen.which(func(e clustertest.AuditEvent) bool { return e.ResponseStatus.Code == http.StatusForbidden })
	if len(refused) > 0 {
		t.Errorf("%d requests were refused:\n%s", len(refused), refused)
	}
	w.outsideOfRole(first)
}

// fares waits until nothing is degraded.
func (o *operator) fares() {
	o.t.Helper()
	var last status
	defer func() {
		if o.t.Failed() {
			o.t.Log("degraded:\n" + last.degraded())
		}
	}()
	o.until("nothing is degraded", func() bool {
		s, ok := o.status()
		last = s
		return ok && len(s.Degraded) == 0
	})
}

// measures makes sure that the runtime has taken the limit of memory over, and
// that metrics are there which alerts rely on and no module declares.
func (c *chart) measures(o *operator) {
	c.t.Helper()
	var text []byte
	o.until("metrics are served", func() bool {
		resp, err := http.Get("http://127.0.0.1:" + c.ports["9963"] + "/metrics")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		text, err = io.ReadAll(resp.Body)
		return err == nil
	})
	for _, want := range []string{
		fmt.Sprintf("go_gc_gomemlimit_bytes %g\n", float64(c.container().Resources.Requests.Memory().Value())),
		"cilium_operator_process_resident_memory_bytes ",
		"cilium_operator_process_start_time_seconds ",
		`cilium_hive_status{status="ok"} `,
		"cilium_operator_leader 1\n",
	} {
		if !strings.Contains(string(text), "\n"+want) {
			c.t.Errorf("the metrics do not have %q:\n%s", want, text)
		}
	}
}

// outsideOfRole shows that the account is held to its role: what no duty needs is
// refused.
func (w *world) outsideOfRole(c *chart) {
	w.t.Helper()
	config := w.AdminConfig(w.t)
	config.Impersonate = rest.ImpersonationConfig{UserName: c.user}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		w.t.Fatal(err)
	}
	_, err = client.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).List(w.t.Context(), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) {
		w.t.Errorf("listing secrets as %s: %v, want it refused", c.user, err)
	}
}
