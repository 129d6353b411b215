// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"

	"github.com/skep-operator/skep/resources/agents/agenttest"
	"github.com/skep-operator/skep/resources/cloudipam/ec2test"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/referencetest"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// stockCharts are what an operator does under a rendered stock chart of a release, by the chart's values.
var stockCharts = []struct {
	release, values string
	// long says that it is watched for long whether it is quiet: what the others have makes hardly any other lines.
	long bool
	// served says that nodes get their CIDRs.
	served bool
	// away is what begins the ids of all that is degraded: its cloud, or SPIRE, cannot be reached.
	away string
}{
	{release: "1.20", values: "default", long: true, served: true},
	{release: "1.20", values: "all-features", long: true, served: true, away: "auth.spire."},
	{release: "1.20", values: "kvstore", served: true},
	{release: "1.20", values: "multi-pool"},
	{release: "1.20", values: "aws"},
	{release: "1.20", values: "azure", away: "ipam.azure."},
	{release: "1.19", values: "default", served: true},
	{release: "1.18", values: "default", served: true},
	{release: "1.17", values: "default", served: true},
	{release: "1.17", values: "all-features", served: true, away: "auth.spire."},
}

// gatewayAPI are the CRDs that Gateways need.
var gatewayAPI = []string{"gatewayclasses", "gateways", "httproutes", "grpcroutes", "referencegrants", "backendtlspolicies"}

// Under the stock chart of each release that is served (its ConfigMap, arguments, environment, probes and role) the operator serves, is
// quiet, and is never refused a request.
func TestInvariant8StockChart(t *testing.T) {
	for _, test := range stockCharts {
		t.Run(test.release+" "+test.values, func(t *testing.T) {
			idle := 5 * time.Second
			switch {
			case seedtest.Soak():
				idle = 70 * time.Second
			case test.long:
				idle = 20 * time.Second
			}
			c := readChartOf(t, test.release, test.values)
			w := newWorld(t)
			w.define("CiliumEnvoyConfig") // it is read also where it is not made here
			audit := w.Audit(t)
			c.apply(w)
			if test.values == "aws" {
				c.cloud = ec2(t)
			}
			if test.values == "all-features" { // the chart leaves these to its user
				crds := operatortest.NewDefinitions(t, w.Cluster)
				crds.InstallGatewayAPI("standard", gatewayAPI...)
				defer func() {
					for _, plural := range gatewayAPI {
						crds.Delete(plural + ".gateway.networking.k8s.io")
					}
				}()
			}
			o := c.run(w)
			o.leads()
			w.awaitDefinition("CiliumNode")
			w.awaitDefinition("CiliumIdentity")
			c.probesAnswer(o)
			if test.served {
				nodesAreServed(&scene{world: w})
			}
			o.until("nothing is degraded but for a server that is away", func() bool {
				s, ok := o.status()
				others := slices.ContainsFunc(s.Degraded, func(d degradedPart) bool { return test.away == "" || !strings.HasPrefix(d.ID, test.away) })
				return ok && !others && (test.away == "" || len(s.Degraded) > 0)
			})
			o.until("an agent of the release is ready", func() bool { return c.serves(w, test.release) })
			c.hasAllDuties(o)
			c.isQuiet(o, idle)
			c.probesAnswer(o)
			if code := o.stop(); code != 0 {
				t.Errorf("exit code %d", code)
			}
			seen := w.requests(audit, c.user)
			if len(seen) < 10 {
				t.Errorf("only %d requests of %s were logged", len(seen), c.user)
			}
			refused := seen.which(func(e clustertest.AuditEvent) bool { return e.ResponseStatus.Code == http.StatusForbidden })
			if len(refused) > 0 {
				t.Errorf("%d requests were refused:\n%s", len(refused), refused)
			}
		})
	}
}

// chart is a rendered chart on its way into a pod.
type chart struct {
	t          *testing.T
	objects    []*unstructured.Unstructured // that the API server gets
	config     corev1.ConfigMap
	deployment appsv1.Deployment
	user       string
	// ports are free ones in place of the chart's, which other operators on this
	// machine may have.
	ports map[string]string
	// cloud are the variables that point at a cloud.
	cloud []string
}

// serves reports whether an agent of a release finds what it waits for and lists.
func (c *chart) serves(w *world, of string) bool {
	c.t.Helper()
	missing, err := agenttest.Agent{Release: of, Config: c.config.Data}.Missing(c.t.Context(), w.dynamic)
	if err != nil {
		c.t.Fatal(err)
	}
	return len(missing) == 0
}

// ec2 serves a cloud and returns the variables that point AWS' SDK at it.
func ec2(t *testing.T) []string {
	t.Helper()
	c := ec2test.New()
	c.Throttling = true
	api, metadata := httptest.NewServer(c), httptest.NewServer(c.Metadata())
	t.Cleanup(api.Close)
	t.Cleanup(metadata.Close)
	return []string{"AWS_ENDPOINT_URL_EC2=" + api.URL, "AWS_EC2_METADATA_SERVICE_ENDPOINT=" + metadata.URL}
}

// readChartOf reads what the reference has for a release, such as 1.20, and a set of values. It skips the test where the reference is not
// at hand.
func readChartOf(t *testing.T, release, values string) *chart {
	t.Helper()
	file, err := os.Open(filepath.Join(referencetest.Folder(t, "chart-"+release), values+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	c := &chart{t: t, ports: map[string]string{}}
	decoder := utilyaml.NewYAMLOrJSONDecoder(file, 4096)
	for {
		u := &unstructured.Unstructured{}
		err := decoder.Decode(&u.Object)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		c.sort(u)
	}
	if len(c.config.Data) == 0 || len(c.deployment.Spec.Template.Spec.Containers) != 1 {
		t.Fatalf("%s has no ConfigMap or no Deployment with one container", file.Name())
	}
	account := c.deployment.Spec.Template.Spec.ServiceAccountName
	c.user = "system:serviceaccount:" + c.deployment.Namespace + ":" + account
	return c
}

func (c *chart) sort(u *unstructured.Unstructured) {
	var err error
	switch u.GetKind() {
	case "": // an empty document
	case "ConfigMap":
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &c.config)
	case "Deployment":
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &c.deployment)
	default:
		c.objects = append(c.objects, u)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// apply gives the service account and its roles to the API server until the test
// ends.
func (c *chart) apply(w *world) {
	w.t.Helper()
	for _, u := range c.objects {
		if ns := u.GetNamespace(); ns != "" {
			_, err := w.dynamic.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).Apply(w.t.Context(), ns, &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": ns},
			}}, metav1.ApplyOptions{FieldManager: "chart"})
			if err != nil {
				w.t.Fatal(err)
			}
		}
		if _, err := w.resourceOf(u).Create(w.t.Context(), u, metav1.CreateOptions{}); err != nil {
			w.t.Fatalf("%s %s: %v", u.GetKind(), u.GetName(), err)
		}
		w.t.Cleanup(func() {
			if err := w.resourceOf(u).Delete(context.Background(), u.GetName(), metav1.DeleteOptions{}); err != nil {
				w.t.Error(err)
			}
		})
	}
	c.awaitRoles(w)
}

// awaitRoles waits until the API server knows of the roles of a chart.
func (c *chart) awaitRoles(w *world) {
	w.t.Helper()
	for _, u := range c.objects {
		role := rbacv1.Role{}
		if k := u.GetKind(); k != "Role" && k != "ClusterRole" {
			continue
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &role); err != nil {
			w.t.Fatal(err)
		}
		clustertest.AwaitAllowedIn(w.t, w.core, c.user, u.GetNamespace(), role.Rules)
	}
}

func (w *world) resourceOf(u *unstructured.Unstructured) dynamic.ResourceInterface {
	resource, _ := meta.UnsafeGuessKindToResource(schema.FromAPIVersionAndKind(u.GetAPIVersion(), u.GetKind()))
	if ns := u.GetNamespace(); ns != "" {
		return w.dynamic.Resource(resource).Namespace(ns)
	}
	return w.dynamic.Resource(resource)
}

func (c *chart) container() *corev1.Container {
	return &c.deployment.Spec.Template.Spec.Containers[0]
}

// run runs the container as a kubelet does: the command's name, arguments and
// environment of the chart, the ConfigMap as mounted volumes. Paths and ports are
// ones of this test.
func (c *chart) run(w *world) *operator {
	c.t.Helper()
	container := c.container()
	program := filepath.Join(c.t.TempDir(), container.Command[0])
	if err := os.Symlink(executable(c.t), program); err != nil {
		c.t.Fatal(err)
	}
	env := c.environment()
	places := c.mount(w.Etcd().Endpoints()[0])
	var args []string
	for _, arg := range append(container.Command[1:], container.Args...) {
		args = append(args, places.Replace(expand(arg, env)))
	}
	var pairs []string
	for name, value := range env {
		pairs = append(pairs, name+"="+places.Replace(value))
	}
	pairs = append(pairs, c.cloud...)
	free := clustertest.FreePorts(c.t, 3)
	for i, port := range []string{"9234", "9963", "9891"} {
		c.ports[port] = fmt.Sprint(free[i])
	}
	// What the harness has set for other tests goes back to what it is without.
	args = append(args,
		"--operator-api-serve-addr="+c.moved("operator-api-serve-addr"),
		"--operator-prometheus-serve-addr="+c.moved("operator-prometheus-serve-addr"),
		"--enable-gops", "--gops-port="+c.ports["9891"],
		"--operator-k8s-client-qps=100", "--operator-k8s-client-burst=200",
	)
	account := c.deployment.Spec.Template.Spec.ServiceAccountName
	return startAs(c.t, program, w.ServiceAccountKubeconfig(c.t, c.deployment.Namespace, account), pairs, args...)
}

func executable(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// moved is an address of the ConfigMap with another port.
func (c *chart) moved(key string) string {
	c.t.Helper()
	host, port, err := net.SplitHostPort(c.config.Data[key])
	if err != nil || c.ports[port] == "" {
		c.t.Fatalf("the chart has %s=%q, which this test does not expect: %v", key, c.config.Data[key], err)
	}
	return net.JoinHostPort(host, c.ports[port])
}

// environment is the container's, by name.
func (c *chart) environment() map[string]string {
	c.t.Helper()
	env := map[string]string{}
	for _, e := range c.container().Env {
		switch from := e.ValueFrom; {
		case from == nil:
			env[e.Name] = expand(e.Value, env)
		case from.FieldRef != nil && from.FieldRef.FieldPath == "spec.nodeName":
			env[e.Name] = "node-1"
		case from.FieldRef != nil && from.FieldRef.FieldPath == "metadata.namespace":
			env[e.Name] = c.deployment.Namespace
		case from.ConfigMapKeyRef != nil && from.ConfigMapKeyRef.Name == c.config.Name:
			if value, ok := c.config.Data[from.ConfigMapKeyRef.Key]; ok {
				env[e.Name] = value
			}
		case from.SecretKeyRef != nil:
			env[e.Name] = "secret"
		default:
			c.t.Fatalf("no way to fill %s", e.Name)
		}
	}
	return env
}

var variable = regexp.MustCompile(`\$\(([^)]+)\)`)

// expand fills $(NAME) in as the kubelet does: what is not known stays.
func expand(text string, env map[string]string) string {
	return variable.ReplaceAllStringFunc(text, func(found string) string {
		if value, ok := env[found[2:len(found)-1]]; ok {
			return value
		}
		return found
	})
}

// mount writes the ConfigMap as a kubelet mounts it, once for each volume of it:
// files behind a link that it can switch at once. What is returned puts the
// places of this test for those of the chart: folders, and etcd.
func (c *chart) mount(etcd string) *strings.Replacer {
	c.t.Helper()
	items := map[string][]corev1.KeyToPath{} // by volume
	empty := map[string]bool{}               // volumes whose secrets do not exist
	for _, v := range c.deployment.Spec.Template.Spec.Volumes {
		empty[v.Name] = v.Projected != nil && !slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool {
			return s.Secret == nil || s.Secret.Optional == nil || !*s.Secret.Optional
		})
		if v.ConfigMap != nil && v.ConfigMap.Name == c.config.Name {
			items[v.Name] = v.ConfigMap.Items
			for key := range c.config.Data {
				if v.ConfigMap.Items == nil {
					items[v.Name] = append(items[v.Name], corev1.KeyToPath{Key: key, Path: key})
				}
			}
		}
	}
	folders := map[string]string{} // by volume
	places := []string{"http://etcd:2379", etcd}
	for _, m := range c.container().VolumeMounts {
		if items[m.Name] != nil {
			folders[m.Name] = c.t.TempDir()
			places = append(places, m.MountPath, folders[m.Name])
		}
		if empty[m.Name] {
			places = append(places, m.MountPath, c.t.TempDir())
		}
	}
	if len(folders) == 0 || len(folders) != len(items) {
		c.t.Fatalf("the container mounts %d of %d volumes of the ConfigMap", len(folders), len(items))
	}
	replacer := strings.NewReplacer(places...)
	for volume, folder := range folders {
		c.fill(folder, items[volume], replacer)
	}
	return replacer
}

func (c *chart) fill(folder string, items []corev1.KeyToPath, replacer *strings.Replacer) {
	c.t.Helper()
	const version = "..2026_01_02_03_04_05.123456789"
	do := func(err error) {
		if err != nil {
			c.t.Fatal(err)
		}
	}
	do(os.Mkdir(filepath.Join(folder, version), 0o755))
	do(os.Symlink(version, filepath.Join(folder, "..data")))
	for _, item := range items {
		value := replacer.Replace(c.config.Data[item.Key])
		do(os.WriteFile(filepath.Join(folder, version, item.Path), []byte(value), 0o644))
		do(os.Symlink(path.Join("..data", item.Path), filepath.Join(folder, item.Path)))
	}
}

// portOf is the number of a port, which newer charts name.
func (c *chart) portOf(port intstr.IntOrString) string {
	for _, p := range c.container().Ports {
		if p.Name == port.String() {
			return fmt.Sprint(p.ContainerPort)
		}
	}
	return port.String()
}

// probesAnswer asks the probes of the manifest as a kubelet does, until they
// succeed, and never longer for an answer than it would wait.
func (c *chart) probesAnswer(o *operator) {
	c.t.Helper()
	for name, p := range map[string]*corev1.Probe{"liveness": c.container().LivenessProbe, "readiness": c.container().ReadinessProbe} {
		if p == nil || p.HTTPGet == nil {
			c.t.Fatalf("the container has no HTTP %s probe", name)
		}
		get := p.HTTPGet
		url := fmt.Sprintf("%s://%s%s", strings.ToLower(string(get.Scheme)), net.JoinHostPort(get.Host, c.ports[c.portOf(get.Port)]), get.Path)
		client := http.Client{Timeout: time.Duration(p.TimeoutSeconds) * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
		o.until("the "+name+" probe succeeds", func() bool {
			resp, err := client.Get(url)
			if err != nil {
				return false
			}
			defer resp.Body.Close()
			return resp.StatusCode == http.StatusOK
		})
	}
}

// isQuiet holds the operator to saying nothing while nothing happens. Its start
// is over when all caches are synced, and it has said nothing for two seconds.
func (c *chart) isQuiet(o *operator, idle time.Duration) {
	c.t.Helper()
	before, since := "", time.Now()
	o.until("the start is over", func() bool {
		if now := o.log.String(); now != before {
			before, since = now, time.Now()
		}
		return time.Since(since) > 2*time.Second && o.synced()
	})
	select {
	case <-o.ended:
		c.t.Fatal("the operator has ended")
	case <-time.After(idle): // what is tested is that time passes
	}
	if said := strings.TrimPrefix(o.log.String(), before); said != "" {
		c.t.Errorf("in %s it said, unasked:\n%s", idle, said)
	}
}

var notBuilt = regexp.MustCompile(`msg="not built yet, and asked for: ([^"]*)"`)

// hasAllDuties holds the operator to doing all that the chart asks it for.
func (c *chart) hasAllDuties(o *operator) {
	c.t.Helper()
	if of := notBuilt.FindStringSubmatch(o.log.String()); of != nil {
		c.t.Errorf("it is asked for what is not built: %s", of[1])
	}
}
