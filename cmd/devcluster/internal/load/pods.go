// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package load

import (
	"fmt"
	"maps"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// podVariants is how many different pod templates there are, but for labels and
// names.
const podVariants = 8

const (
	portHTTP, portMetrics, portAdmin = 8080, 9090, 15000
	sidecarImage                     = "registry.example.com/mesh/proxy:v1.24.3"
)

func image(variant int) string {
	return fmt.Sprintf("registry.example.com/apps/service-%d:v2.%d.1", variant, variant)
}

func imageID(image string) string {
	return "registry.example.com/library@sha256:" + digest(image)
}

// podLabels are those of the workload and of its kind.
func podLabels(w *workload) map[string]string {
	labels := maps.Clone(w.labels)
	if w.daemonSet {
		labels["controller-revision-hash"] = w.hash
		labels["pod-template-generation"] = "1"
	} else {
		labels["pod-template-hash"] = w.hash
	}
	return labels
}

func podAnnotations(w *workload) map[string]string {
	return map[string]string{
		"checksum/config":                             digest(w.namespace + "/" + w.name),
		"kubectl.kubernetes.io/default-container":     "app",
		"prometheus.io/port":                          strconv.Itoa(portMetrics),
		"prometheus.io/scrape":                        "true",
		"cluster-autoscaler.kubernetes.io/safe-evict": "true",
	}
}

func (p *plan) podUID(w *workload, name string) types.UID { return p.uid("Pod", w.namespace, name) }

func (p *plan) pod(w *workload, replica int) item {
	name := p.podName(w, replica)
	node, host := p.place(w, replica)
	owner := p.podOwner(w)
	spec := podSpec(w)
	spec.NodeName = nodeName(node)
	addToken(&spec, "kube-api-access-"+digest(name)[:5])
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.namespace, Name: name, UID: p.podUID(w, name), Generation: 1,
			CreationTimestamp: after(2 * time.Minute),
			Labels:            podLabels(w), Annotations: podAnnotations(w),
			GenerateName:    name[:len(name)-5],
			OwnerReferences: []metav1.OwnerReference{owner},
		},
		Spec:   spec,
		Status: podStatus(w, name, node, host),
	}
	shape := fmt.Sprintf("pod/%v/%d", w.daemonSet, w.variant)
	if w.daemonSet {
		shape += "/" + w.name // label keys are the same for all, the env differs
	}
	return item{kind: podKind, shape: shape, object: pod,
		fillers: []string{string(owner.UID), podIP(node, host).String(), spec.Volumes[len(spec.Volumes)-1].Name}}
}

func (p *plan) podOwner(w *workload) metav1.OwnerReference {
	owner := metav1.OwnerReference{
		APIVersion: "apps/v1", Kind: "ReplicaSet", Name: w.name + "-" + w.hash,
		Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
	}
	if w.daemonSet {
		owner.Kind, owner.Name = "DaemonSet", w.name
	}
	owner.UID = p.uid(owner.Kind, w.namespace, owner.Name)
	return owner
}

// podSpec is the template's: a program and a sidecar.
func podSpec(w *workload) corev1.PodSpec {
	return corev1.PodSpec{
		ServiceAccountName:            "default",
		TerminationGracePeriodSeconds: ptr.To[int64](60),
		SecurityContext:               &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](65532), FSGroup: ptr.To[int64](65532)},
		Priority:                      ptr.To[int32](0),
		PreemptionPolicy:              ptr.To(corev1.PreemptLowerPriority),
		Tolerations: []corev1.Toleration{
			{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](300)},
			{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](300)},
		},
		Volumes: []corev1.Volume{
			{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: w.name + "-config"}}}},
			{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		},
		Containers: []corev1.Container{appContainer(w), sidecarContainer(w)},
	}
}

func appContainer(w *workload) corev1.Container {
	return corev1.Container{
		Name: "app", Image: image(w.variant), ImagePullPolicy: corev1.PullIfNotPresent,
		Args: []string{"serve", "--listen=:" + strconv.Itoa(portHTTP), "--config=/etc/app/config.yaml", "--log-format=json"},
		Ports: []corev1.ContainerPort{
			{Name: "http", ContainerPort: portHTTP, Protocol: corev1.ProtocolTCP},
			{Name: "metrics", ContainerPort: portMetrics, Protocol: corev1.ProtocolTCP},
		},
		Env:            appEnv(w),
		Resources:      resources("100m", "128Mi", "512Mi"),
		LivenessProbe:  probe("/healthz", portHTTP, 10),
		ReadinessProbe: probe("/readyz", portHTTP, 5),
		StartupProbe:   probe("/healthz", portHTTP, 2),
		Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{
			Exec: &corev1.ExecAction{Command: []string{"/bin/sh", "-c", "sleep 5"}}}},
		VolumeMounts: []corev1.VolumeMount{
			{Name: "config", MountPath: "/etc/app", ReadOnly: true},
			{Name: "tmp", MountPath: "/tmp"},
		},
		SecurityContext: hardened(),
	}
}

func sidecarContainer(w *workload) corev1.Container {
	return corev1.Container{
		Name: "proxy", Image: sidecarImage, ImagePullPolicy: corev1.PullIfNotPresent,
		Args:  []string{"proxy", "sidecar", "--domain=" + w.namespace + ".svc.cluster.local", "--concurrency=2"},
		Ports: []corev1.ContainerPort{{Name: "admin", ContainerPort: portAdmin, Protocol: corev1.ProtocolTCP}},
		Env: []corev1.EnvVar{
			fieldEnv("POD_NAME", "metadata.name"), fieldEnv("POD_NAMESPACE", "metadata.namespace"),
			fieldEnv("INSTANCE_IP", "status.podIP"), fieldEnv("HOST_IP", "status.hostIP"),
			{Name: "WORKLOAD", Value: w.name}, {Name: "TRUST_DOMAIN", Value: "cluster.local"},
		},
		Resources:       resources("10m", "64Mi", "256Mi"),
		ReadinessProbe:  probe("/ready", portAdmin, 5),
		VolumeMounts:    []corev1.VolumeMount{{Name: "tmp", MountPath: "/tmp"}},
		SecurityContext: hardened(),
	}
}

// appEnv differs in what it names from one variant to the next.
func appEnv(w *workload) []corev1.EnvVar {
	env := []corev1.EnvVar{
		fieldEnv("POD_NAME", "metadata.name"), fieldEnv("POD_IP", "status.podIP"), fieldEnv("NODE_NAME", "spec.nodeName"),
		{Name: "LOG_LEVEL", Value: "info"}, {Name: "APP_NAME", Value: w.name},
		{Name: "OTEL_SERVICE_NAME", Value: w.name}, {Name: "OTEL_EXPORTER_OTLP_ENDPOINT", Value: "http://otel-collector.observability:4317"},
		{Name: "DATABASE_PASSWORD", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: w.name + "-database"}, Key: "password"}}},
	}
	for i := range 2 + w.variant {
		env = append(env, corev1.EnvVar{Name: fmt.Sprintf("UPSTREAM_%d_URL", i), Value: fmt.Sprintf("http://%s-%d.%s:8080", roles[i%len(roles)], i, w.namespace)})
	}
	return env
}

func fieldEnv(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}}
}

func resources(cpu, memory, limit string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(limit)},
	}
}

func probe(path string, port int, period int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt(port)}},
		PeriodSeconds: period, TimeoutSeconds: 2, FailureThreshold: 6,
	}
}

func hardened() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}

// addToken adds what the service account admission would.
func addToken(spec *corev1.PodSpec, volume string) {
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{
		Projected: &corev1.ProjectedVolumeSource{
			DefaultMode: ptr.To[int32](0o644),
			Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: ptr.To[int64](3607), Path: "token"}},
				{ConfigMap: &corev1.ConfigMapProjection{
					LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
					Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
				{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
					Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}}}}},
			},
		}}})
	for i := range spec.Containers {
		spec.Containers[i].VolumeMounts = append(spec.Containers[i].VolumeMounts, corev1.VolumeMount{
			Name: volume, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true})
	}
}

// podStatus is what a kubelet reports of a pod that runs.
func podStatus(w *workload, name string, node, host int) corev1.PodStatus {
	ip, hostIP := podIP(node, host).String(), nodeIP(node).String()
	start := after(2*time.Minute + time.Second)
	return corev1.PodStatus{
		Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBurstable, ObservedGeneration: 1,
		HostIP: hostIP, HostIPs: []corev1.HostIP{{IP: hostIP}},
		PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
		StartTime: &start,
		Conditions: []corev1.PodCondition{
			podCondition(corev1.PodReadyToStartContainers, 10), podCondition(corev1.PodInitialized, 1),
			podCondition(corev1.PodReady, 30), podCondition(corev1.ContainersReady, 30), podCondition(corev1.PodScheduled, 0),
		},
		ContainerStatuses: []corev1.ContainerStatus{
			containerStatus(name, "app", image(w.variant)),
			containerStatus(name, "proxy", sidecarImage),
		},
	}
}

func podCondition(t corev1.PodConditionType, seconds int) corev1.PodCondition {
	return corev1.PodCondition{
		Type: t, Status: corev1.ConditionTrue, ObservedGeneration: 1,
		LastTransitionTime: after(2*time.Minute + time.Duration(seconds)*time.Second),
	}
}

func containerStatus(pod, container, image string) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name: container, Image: image, ImageID: imageID(image),
		ContainerID: containerID(pod, container),
		Ready:       true, Started: ptr.To(true),
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: after(2*time.Minute + 12*time.Second)}},
	}
}

func containerID(pod, container string) string {
	return "containerd://" + digest(pod+"/"+container)
}
