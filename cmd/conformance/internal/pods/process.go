// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package pods

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	corev1 "k8s.io/api/core/v1"
)

// process is what runs in a pod.
type process struct {
	ip    string
	ports map[int32]int // on this host, by the port in the pod
	main  int           // the port that it serves in any case, 0 if nothing runs
	cmd   *exec.Cmd
	log   log
}

// log is what a process has written. It is safe for concurrent use.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// variable is an environment variable with the port that the echo server serves, and the port in the pod.
type variable struct {
	name string
	port int32
}

// variables are those of the kinds of the echo server.
func variables(c *corev1.Container) []variable {
	for _, e := range c.Env {
		if e.Name == "TCP_ECHO_SERVER" {
			return []variable{{"TCP_PORT", 3000}, {"TLS_PORT", 8443}}
		}
	}
	return []variable{{"HTTP_PORT", 3000}, {"H2C_PORT", 3001}, {"HTTPS_PORT", 8443}}
}

// launch starts what runs in a pod.
func (r *Runner) launch(pod *corev1.Pod) (*process, error) {
	p := &process{ports: map[int32]int{}}
	c := &pod.Spec.Containers[0]
	if !strings.Contains(c.Image, "/echo-basic:") {
		return p, nil
	}
	mounts, err := r.mount(pod, c)
	if err != nil {
		return nil, err
	}
	p.cmd = exec.Command(r.Echo)
	p.cmd.Env = environment(pod, c, mounts)
	of := variables(c)
	for i, port := range r.Ports(len(of)) {
		p.ports[of[i].port] = port
		p.cmd.Env = append(p.cmd.Env, of[i].name+"="+strconv.Itoa(port))
	}
	p.main = p.ports[of[0].port]
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return p, p.cmd.Start()
}

// listens reports whether the process serves.
func (p *process) listens() bool {
	if p.cmd == nil {
		return true
	}
	conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(p.main)))
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

func (p *process) stop() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// mount writes the secrets that a container mounts to this host. It returns the folders by the paths in the container.
func (r *Runner) mount(pod *corev1.Pod, c *corev1.Container) (map[string]string, error) {
	mounts := map[string]string{}
	for _, m := range c.VolumeMounts {
		for _, v := range pod.Spec.Volumes {
			if v.Name != m.Name || v.Secret == nil {
				continue
			}
			s, err := r.secrets.Secrets(pod.Namespace).Get(v.Secret.SecretName)
			if err != nil {
				return nil, err
			}
			dir := filepath.Join(r.Dir, pod.Namespace, pod.Name, v.Name)
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return nil, err
			}
			for _, item := range v.Secret.Items {
				if err := os.WriteFile(filepath.Join(dir, item.Path), s.Data[item.Key], 0o600); err != nil {
					return nil, fmt.Errorf("mounting %s: %w", v.Name, err)
				}
			}
			mounts[m.MountPath] = dir
		}
	}
	return mounts, nil
}

// environment is that of a container, with paths of this host.
func environment(pod *corev1.Pod, c *corev1.Container, mounts map[string]string) (all []string) {
	for _, e := range c.Env {
		value := e.Value
		if e.ValueFrom != nil && e.ValueFrom.FieldRef != nil {
			switch e.ValueFrom.FieldRef.FieldPath {
			case "metadata.name":
				value = pod.Name
			case "metadata.namespace":
				value = pod.Namespace
			}
		}
		for path, dir := range mounts {
			if rest, ok := strings.CutPrefix(value, path+"/"); ok {
				value = filepath.Join(dir, rest)
			}
		}
		all = append(all, e.Name+"="+value)
	}
	return all
}
