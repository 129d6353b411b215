// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package load

import (
	"fmt"
	"maps"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

const revision = "deployment.kubernetes.io/revision"

func selector(w *workload) map[string]string {
	return map[string]string{"app": w.name}
}

func podTemplate(w *workload) corev1.PodTemplateSpec {
	spec := podSpec(w)
	// Added to each pod at its admission.
	spec.Priority, spec.PreemptionPolicy, spec.Tolerations = nil, nil, nil
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: maps.Clone(w.labels), Annotations: podAnnotations(w)},
		Spec:       spec,
	}
}

func (p *plan) deployment(w *workload) item {
	replicas := int32(w.replicas)
	return item{kind: deploymentKind, shape: fmt.Sprintf("deployment/%d", w.variant), object: &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.namespace, Name: w.name, UID: p.uid("Deployment", w.namespace, w.name), Generation: 1,
			CreationTimestamp: after(time.Minute), Labels: maps.Clone(w.labels), Annotations: map[string]string{revision: "1"},
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: selector(w)}, Template: podTemplate(w),
			RevisionHistoryLimit: ptr.To[int32](10), ProgressDeadlineSeconds: ptr.To[int32](600),
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{
				MaxSurge: ptr.To(intstr.FromString("25%")), MaxUnavailable: ptr.To(intstr.FromString("25%"))}},
		},
		Status: appsv1.DeploymentStatus{
			ObservedGeneration: 1, Replicas: replicas, UpdatedReplicas: replicas, ReadyReplicas: replicas, AvailableReplicas: replicas,
			Conditions: []appsv1.DeploymentCondition{
				deploymentCondition(appsv1.DeploymentAvailable, "MinimumReplicasAvailable", "Deployment has minimum availability."),
				deploymentCondition(appsv1.DeploymentProgressing, "NewReplicaSetAvailable", "ReplicaSet has successfully progressed."),
			},
		},
	}}
}

func deploymentCondition(t appsv1.DeploymentConditionType, reason, message string) appsv1.DeploymentCondition {
	return appsv1.DeploymentCondition{
		Type: t, Status: corev1.ConditionTrue, Reason: reason, Message: message,
		LastUpdateTime: after(3 * time.Minute), LastTransitionTime: after(3 * time.Minute),
	}
}

func (p *plan) replicaSet(w *workload) item {
	replicas := int32(w.replicas)
	template := podTemplate(w)
	template.Labels["pod-template-hash"] = w.hash
	chosen := selector(w)
	chosen["pod-template-hash"] = w.hash
	name := w.name + "-" + w.hash
	owner := p.uid("Deployment", w.namespace, w.name)
	return item{kind: replicaSetKind, shape: fmt.Sprintf("replicaset/%d", w.variant), fillers: []string{string(owner)}, object: &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.namespace, Name: name, UID: p.uid("ReplicaSet", w.namespace, name), Generation: 1,
			CreationTimestamp: after(time.Minute), Labels: maps.Clone(template.Labels),
			Annotations: map[string]string{revision: "1", "deployment.kubernetes.io/desired-replicas": fmt.Sprint(replicas)},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "Deployment", Name: w.name, UID: owner,
				Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true)}},
		},
		Spec: appsv1.ReplicaSetSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: chosen}, Template: template},
		Status: appsv1.ReplicaSetStatus{
			ObservedGeneration: 1, Replicas: replicas, FullyLabeledReplicas: replicas, ReadyReplicas: replicas, AvailableReplicas: replicas,
		},
	}}
}

func (p *plan) daemonSet(w *workload) item {
	n := int32(w.replicas)
	return item{kind: daemonSetKind, shape: "daemonset/" + w.name, object: &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.namespace, Name: w.name, UID: p.uid("DaemonSet", w.namespace, w.name), Generation: 1,
			CreationTimestamp: after(time.Minute), Labels: maps.Clone(w.labels),
			Annotations: map[string]string{appsv1.DeprecatedTemplateGeneration: "1"},
		},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: selector(w)}, Template: podTemplate(w), RevisionHistoryLimit: ptr.To[int32](10),
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType, RollingUpdate: &appsv1.RollingUpdateDaemonSet{
				MaxUnavailable: ptr.To(intstr.FromInt32(1)), MaxSurge: ptr.To(intstr.FromInt32(0))}},
		},
		Status: appsv1.DaemonSetStatus{
			ObservedGeneration: 1, CurrentNumberScheduled: n, DesiredNumberScheduled: n, UpdatedNumberScheduled: n, NumberReady: n, NumberAvailable: n,
		},
	}}
}
