// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package manifests

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	podsecurity "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// build is what `kubectl apply -k` would send.
func build(t *testing.T, folder string) resmap.ResMap {
	t.Helper()
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func deployment(t *testing.T) *appsv1.Deployment {
	t.Helper()
	for _, r := range build(t, ".").Resources() {
		if r.GetKind() == "Deployment" {
			d := &appsv1.Deployment{}
			text, err := r.AsYAML()
			if err == nil {
				err = yaml.UnmarshalStrict(text, d)
			}
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
	}
	t.Fatal("there is no Deployment")
	return nil
}

// TestKustomize builds both folders: every manifest is in, but for the ConfigMap,
// which agents' installers own.
func TestKustomize(t *testing.T) {
	for folder, others := range map[string][]string{
		".":             {"configmap.yaml", "kustomization.yaml"},
		"../monitoring": {"rules.yaml", "kustomization.yaml"},
	} {
		files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		objects := build(t, folder)
		if got, want := objects.Size(), len(files)-len(others); got != want {
			t.Errorf("%s: %d objects of %d files", folder, got, want)
		}
		for _, r := range objects.Resources() {
			if ns := r.GetNamespace(); ns != "kube-system" && !strings.HasPrefix(r.GetKind(), "ClusterRole") {
				t.Errorf("%s %s is in namespace %q", r.GetKind(), r.GetName(), ns)
			}
		}
	}
}

// TestImageIsReplaced makes sure that the kustomization has the image that people
// put theirs in place of.
func TestImageIsReplaced(t *testing.T) {
	fs := filesys.MakeFsOnDisk()
	base, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	relative, err := filepath.Rel(overlay, base)
	if err != nil {
		t.Fatal(err)
	}
	text := "resources: [" + relative + "]\nimages: [{name: skep, newName: registry.example/skep, newTag: v1}]\n"
	if err := fs.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(text)); err != nil {
		t.Fatal(err)
	}
	rendered, err := build(t, overlay).AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(rendered), "image: registry.example/skep:v1\n"); n != 1 {
		t.Errorf("%d containers have the image of the overlay, want 1", n)
	}
}

// hostNetwork is what the operator must have and restricted pods may not: nodes
// have no pod network before it served them, and its probes are asked on
// loopback.
var hostNetwork = []string{"host namespaces", "hostPort", "probe or lifecycle host"}

// TestPodSecurity holds the pod to the standard "restricted" in all else.
func TestPodSecurity(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	restricted := podsecurity.LevelVersion{Level: podsecurity.LevelRestricted, Version: podsecurity.LatestVersion()}
	violations := func(d *appsv1.Deployment) (reasons []string) {
		for _, result := range evaluator.EvaluatePod(restricted, &d.Spec.Template.ObjectMeta, &d.Spec.Template.Spec) {
			if !result.Allowed {
				reasons = append(reasons, result.ForbiddenReason)
			}
		}
		slices.Sort(reasons)
		return reasons
	}
	d := deployment(t)
	if got := violations(d); !slices.Equal(got, hostNetwork) {
		t.Errorf("violated are %q, want %q", got, hostNetwork)
	}
	d.Spec.Template.Spec.Containers[0].SecurityContext.Capabilities = nil
	if got := violations(d); len(got) <= len(hostNetwork) {
		t.Errorf("with all capabilities, violated are %q: the test shows nothing", got)
	}
}

// TestReadOnlyRoot: the standard does not ask for it.
func TestReadOnlyRoot(t *testing.T) {
	pod := deployment(t).Spec.Template.Spec
	if ro := pod.Containers[0].SecurityContext.ReadOnlyRootFilesystem; ro == nil || !*ro {
		t.Error("the root can be written to")
	}
	mounted := map[string]string{}
	for _, m := range pod.Containers[0].VolumeMounts {
		mounted[m.MountPath] = m.Name
	}
	for _, v := range pod.Volumes {
		if v.EmptyDir != nil && mounted["/var/run/cilium"] == v.Name {
			return
		}
	}
	t.Error("there is no place for the socket in /var/run/cilium")
}
