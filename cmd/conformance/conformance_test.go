// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package conformance

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayv1alpha2 "sigs.k8s.io/gateway-api/apis/v1alpha2"
	gatewayv1alpha3 "sigs.k8s.io/gateway-api/apis/v1alpha3"
	gatewayv1beta1 "sigs.k8s.io/gateway-api/apis/v1beta1"
	xv1alpha1 "sigs.k8s.io/gateway-api/apisx/v1alpha1"
	report "sigs.k8s.io/gateway-api/conformance/apis/v1"
	"sigs.k8s.io/gateway-api/conformance/utils/config"
	"sigs.k8s.io/gateway-api/pkg/features"
	"sigs.k8s.io/yaml"

	"github.com/skep-operator/skep/cmd/conformance/internal/agent"
	"github.com/skep-operator/skep/cmd/conformance/internal/pods"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/operatortest"
)

const (
	className        = "cilium"
	secretsNamespace = "cilium-secrets"
	// usableAddress and unusableAddress are for Gateways that ask for addresses: one of the pool, and one of no pool.
	usableAddress, unusableAddress = "127.201.200.1", "127.202.0.1"
	pool                           = "127.201.0.0/16"
)

// TestGatewayAPI runs the suite.
func TestGatewayAPI(t *testing.T) {
	programs := os.Getenv("SKEP_CONFORMANCE")
	if programs == "" {
		t.Skip("make conformance runs this")
	}
	c := clustertest.Start(t)
	restConfig := c.AdminConfig(t)
	core, err := kubernetes.NewForConfig(restConfig)
	must(t, err)
	untyped, err := dynamic.NewForConfig(restConfig)
	must(t, err)
	installDefinitions(t, c)
	for _, name := range []string{"kube-system", secretsNamespace} {
		_, _ = core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	}

	runOperator(t, filepath.Join(programs, "operator"), c.Kubeconfig())
	r := &pods.Runner{
		Client: core, Echo: filepath.Join(programs, "echo-basic"), Dir: t.TempDir(),
		Ports: func(n int) []int { return clustertest.FreePorts(t, n) }, Report: func(err error) { t.Log("pods: ", err) },
	}
	inBackground(t, r.Run)
	a := &agent.Agent{
		Core: core, Dynamic: untyped, SecretsNamespace: secretsNamespace, Address: r.Address, Report: func(err error) { t.Error("agent: ", err) },
	}
	operatortest.Eventually(t, "the operator has created its CRDs", func() bool {
		_, err := untyped.Resource(schema.GroupVersionResource{Group: "cilium.io", Version: "v2", Resource: "ciliumenvoyconfigs"}).List(t.Context(), metav1.ListOptions{})
		return err == nil
	})
	inBackground(t, a.Run)
	create(t, untyped, schema.GroupVersionResource{Group: "cilium.io", Version: "v2alpha1", Resource: "ciliumloadbalancerippools"},
		fmt.Sprintf(`{apiVersion: cilium.io/v2alpha1, kind: CiliumLoadBalancerIPPool, metadata: {name: loopback}, spec: {blocks: [{cidr: %s}]}}`, pool))
	create(t, untyped, schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gatewayclasses"},
		fmt.Sprintf(`{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: %s}, spec: {controllerName: io.cilium/gateway-controller}}`, className))

	log.SetLogger(logr.Discard())
	k8s, err := client.New(restConfig, client.Options{})
	must(t, err)
	for _, install := range []func() error{
		func() error { return gatewayv1.Install(k8s.Scheme()) }, func() error { return gatewayv1alpha2.Install(k8s.Scheme()) },
		func() error { return gatewayv1beta1.Install(k8s.Scheme()) },
		func() error { return gatewayv1alpha3.Install(k8s.Scheme()) }, func() error { return xv1alpha1.Install(k8s.Scheme()) },
		func() error { return apiextensionsv1.AddToScheme(k8s.Scheme()) },
	} {
		must(t, install())
	}
	runSuite(t, k8s, core, restConfig, report.Implementation{
		Organization: "skep-operator", Project: "skep", URL: "https://github.com/skep-operator/skep", Version: "devel",
		Contact: []string{"https://github.com/skep-operator/skep"},
	}, supported(t, untyped))
}

// address is an address that a Gateway asks for.
func address(value string) []gatewayv1.GatewaySpecAddress {
	return []gatewayv1.GatewaySpecAddress{{Type: new(gatewayv1.IPAddressType), Value: value}}
}

// timeouts are shorter than the suite's own: nothing here takes a minute.
func timeouts() config.TimeoutConfig {
	c := config.DefaultTimeoutConfig()
	c.MaxTimeToConsistency = 10 * time.Second
	for _, d := range []*time.Duration{
		&c.GatewayMustHaveAddress, &c.GatewayMustHaveCondition, &c.GatewayStatusMustHaveListeners, &c.GatewayListenersMustHaveConditions,
		&c.HTTPRouteMustNotHaveParents, &c.HTTPRouteMustHaveCondition, &c.TLSRouteMustHaveCondition, &c.RouteMustHaveParents,
		&c.LatestObservedGenerationSet, &c.GWCMustBeAccepted,
	} {
		*d = 20 * time.Second
	}
	return c
}

// supported are the features that the operator says to support, but for those of a mesh.
func supported(t *testing.T, untyped dynamic.Interface) (all []features.FeatureName) {
	t.Helper()
	mesh := features.SetsToNamesSet(features.MeshCoreFeatures, features.MeshExtendedFeatures)
	operatortest.Eventually(t, "the GatewayClass has supported features", func() bool {
		u, err := untyped.Resource(schema.GroupVersion(gatewayv1.GroupVersion).WithResource("gatewayclasses")).Get(t.Context(), className, metav1.GetOptions{})
		must(t, err)
		names, _, _ := unstructured.NestedSlice(u.Object, "status", "supportedFeatures")
		for _, n := range names {
			fields, _ := n.(map[string]any)
			name, _ := fields["name"].(string)
			if !mesh.Has(features.FeatureName(name)) {
				all = append(all, features.FeatureName(name))
			}
		}
		return len(all) > 0
	})
	return all
}

// installDefinitions installs the experimental channel of the Gateway API.
func installDefinitions(t *testing.T, c *clustertest.Cluster) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api").Output()
	must(t, err)
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "config", "crd", "experimental", "gateway.networking*.yaml"))
	must(t, err)
	if len(files) == 0 {
		t.Fatal("the module of the Gateway API has no definitions")
	}
	all := operatortest.NewDefinitions(t, c)
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		if strings.Contains(string(text), "kind: CustomResourceDefinition") { // one is an admission policy
			all.Apply(text)
		}
	}
}

func create(t *testing.T, untyped dynamic.Interface, resource schema.GroupVersionResource, text string) {
	t.Helper()
	u := &unstructured.Unstructured{}
	must(t, yaml.Unmarshal([]byte(text), &u.Object))
	operatortest.Eventually(t, u.GetKind()+" is created", func() bool {
		_, err := untyped.Resource(resource).Create(t.Context(), u, metav1.CreateOptions{})
		return err == nil
	})
}

// inBackground runs until the test ends.
func inBackground(t *testing.T, run func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var done sync.WaitGroup
	done.Go(func() {
		if err := run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); done.Wait() })
}

// runOperator runs the program until the test ends.
func runOperator(t *testing.T, program, kubeconfig string) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "operator.log")
	if to := os.Getenv("SKEP_CONFORMANCE_LOG"); to != "" {
		file = to
	}
	out, err := os.Create(file)
	must(t, err)
	cmd := exec.Command(program,
		"--k8s-kubeconfig-path="+kubeconfig, "--k8s-namespace=kube-system", "--operator-sock-path="+filepath.Join(dir, "operator.sock"),
		"--operator-api-serve-addr=", "--enable-gops=false", "--ipam=kubernetes", "--log-opt=format=text",
		"--cilium-release=1.20", "--operator-k8s-client-qps=1000", "--operator-k8s-client-burst=2000",
		"--enable-envoy-config", "--kube-proxy-replacement=true", "--enable-lb-ipam", "--enable-gateway-api",
		"--enable-gateway-api-alpn", "--enable-gateway-api-app-protocol", "--gateway-api-secrets-namespace="+secretsNamespace)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if text, err := os.ReadFile(file); err == nil && t.Failed() {
			t.Logf("the operator's log ends with:\n%s", text[max(0, len(text)-8000):])
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
