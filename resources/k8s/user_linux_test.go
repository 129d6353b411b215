// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// K8S-1: a kubeconfig that only root may read, as charts mount it from nodes.
func TestAKubeconfigOfAnotherUserIsRefusedWithTheRemedy(t *testing.T) {
	path := kubeconfig(t, clientcmdapi.AuthInfo{Token: "t"})
	if err := os.Chmod(path, 0); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 { // root passes every file mode
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := syscall.Setfsuid(65532); err != nil {
			t.Skip(err)
		}
		defer func() { _ = syscall.Setfsuid(0) }()
	}
	_, err := restConfig(Config{K8sKubeconfigPath: path})
	if err == nil || !strings.Contains(err.Error(), "permission denied") || !strings.Contains(err.Error(), "runAsUser") {
		t.Errorf("%v", err)
	}
}
